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

// Generations that this build has kernels for, "7.5 9.0"; "" for none.
std::string gpu_generations();
// The major version of CUDA that it was built with, as drivers count: 13000; 0 for none.
int cuda_version();

std::string_view build_commit();  // "3f2a91c", or "unknown"

std::string version_text(std::string_view program);

}  // namespace ktx::tools
