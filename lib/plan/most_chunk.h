// The most tokens of a step, by a plan, an option or a caller of the C library.
#pragma once

#include <cstdint>

namespace ktx::plan {

// A launch on a GPU has 65,535 rows of blocks, and some kernels take one for each token.
inline constexpr int64_t kMostChunk = 32768;

}  // namespace ktx::plan
