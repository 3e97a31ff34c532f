// A sum of what several GPUs have, on each of them: they read and write each other's memory over
// NVLink or PCIe, and wait for each other on the GPUs, so that a token of all of them needs no host
// between. Every GPU adds the parts in the same order, so that all have the same bits.
//
// Small sums (a few tokens) go in one way: each GPU writes its part into the memory of the others,
// each float with the number of the sum behind it, and reads what comes until all have that number
// (NCCL's LL protocol). Where GPUs do not reach each other's memory, what they write and read
// stands in pinned memory of the host, and larger sums go in slices. Over peers large ones, and
// those to which not all have a part, are read:
//
//   GPU 0                                  GPU 1
//   its part is written                    its part is written
//   flag in GPU 1's memory = 7             flag in GPU 0's memory = 7
//   waits until its own flag is 7          waits until its own flag is 7
//   x += part 0 + part 1                   x += part 0 + part 1
//
// A GPU that has come to sum n has read all parts of sum n - 1. So a part's memory is free again
// after the next sum, and what was written into another GPU's memory after the one behind that.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "lib/support/result.h"

namespace ktx::kernels {

inline constexpr int kMostTeam = 8;
inline constexpr int64_t kMostSmallSum = 128 << 10;  // elements

// What the others of a team write for a GPU, in its own memory or in that of the host, zero at the
// start: what GPU r writes is at [r].
struct CudaTeamMemory {
  uint32_t flags[kMostTeam];
  // For small sums, by even and odd number of the sum: {float, number} for each element.
  alignas(16) uint2 small[2][kMostTeam][kMostSmallSum];
};

// In a GPU's own memory, zero at the start.
struct CudaTeamCounts {
  uint32_t sums;      // that it has made
  uint32_t finished;  // blocks of the one at hand
};

struct CudaTeam {
  CudaTeamMemory* memory[kMostTeam] = {};  // of each GPU
  CudaTeamCounts* counts = nullptr;        // of this one
  bool by_host = false;                    // parts cannot be read where they are
  int gpus = 0;
  int rank = 0;
  // In pinned host memory: number of the GPU that did not come within 20 s, and 1; 0: all came.
  uint32_t* missing = nullptr;
};

struct CudaAllReduceArgs {
  float* y = nullptr;  // aligned to 16 bytes, as the parts are
  bool accumulate = false;
  const float* parts[kMostTeam] = {};  // added in this order
  int ranks[kMostTeam] = {};           // of the GPUs that have them
  int count = 0;
  int64_t elems = 0;
};

// Every GPU of the team launches the same sums in the same order. Parts of an even number of
// elements, where they go by the host.
Status launch_all_reduce(const CudaAllReduceArgs& args, const CudaTeam& team, CudaStream stream);

}  // namespace ktx::kernels
