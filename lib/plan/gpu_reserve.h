// The memory of a GPU that a run keeps free beside what its plan's formulas count: partial sums of
// kernels, weights of a library's product, graphs, and what the driver takes for itself meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ktx::plan {

// The largest partial sums are those of MLA in expanded form (cuda_latent.h): 128 heads of 128 at
// 65,536 positions take 240 MiB, and a token of the chunk 48 KiB.
inline uint64_t gpu_reserve_bytes(int64_t step_tokens) {
  const int64_t more = std::max<int64_t>(0, step_tokens - 4096);
  return (uint64_t{512} << 20) + (static_cast<uint64_t>(more) << 16);
}

}  // namespace ktx::plan
