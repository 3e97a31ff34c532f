// What --version prints: the version, and how this program was built.
//
//   ktx-run 0.1.0
//   commit    3f2a91c
//   compiler  g++ 12.2.0, Release
//   kernels   scalar avx2 avx512 amx; GPUs: none in this build
//   C library glibc 2.36 here
#pragma once

#include <string>
#include <string_view>

namespace ktx::tools {

std::string version_text(std::string_view program);

}  // namespace ktx::tools
