// The best of a row's scores, by their numbers: what choose_positions and choose_blocks end with.
//
// A block takes one row. A radix select finds the score of rank `most`, eight bits a round from the
// highest; then the numbers above it are written in rising order, and of those that equal it the
// lowest ones. A row with no more scores than that takes all, without looking at them.
#pragma once

#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {

constexpr int kBestThreads = 1024;

// Bits of a score that rise with it; those of best_positions.h.
__device__ __forceinline__ uint32_t rising_bits(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// In how many of the block's threads before this one `flag` is set, and in how many of all.
// `counts` has a place for each warp; every thread calls this.
__device__ __forceinline__ int2 count_before(bool flag, int* counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t votes = __ballot_sync(~0u, flag);
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1)), all = 0;
#pragma unroll 8
  for (int w = 0; w < kBestThreads / 32; ++w) {
    const int count = counts[w];
    before += w < warp ? count : 0;
    all += count;
  }
  __syncthreads();
  return {before, all};
}

// Rows: most(): of a row; count(row): its scores; scores(row); chosen(row): `most` numbers, -1
// behind the last one.
template <class Rows>
__global__ void __launch_bounds__(kBestThreads) best_scores(Rows rows) {
  begin_kernel();
  __shared__ int bins[256];
  __shared__ int counts[kBestThreads / 32];
  __shared__ uint32_t found[2];  // the byte of the score at rank `most`, and how many come before
  const int thread = static_cast<int>(threadIdx.x), most = rows.most();
  const int64_t row = blockIdx.x;
  int32_t* const out = rows.chosen(row);
  const int seen = rows.count(row);
  if (seen <= most) {
    for (int i = thread; i < most; i += kBestThreads) out[i] = i < seen ? i : -1;
    return;
  }
  const float* const own = rows.scores(row);
  uint32_t least = 0;  // the highest bits of the score at rank `most`, as far as they are known
  int equal = most;    // how many with these bits are taken
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = thread; i < 256; i += kBestThreads) bins[i] = 0;
    __syncthreads();
    for (int p = thread; p < seen; p += kBestThreads) {
      const uint32_t bits = rising_bits(own[p]);
      const bool same = shift == 24 || bits >> (shift + 8) == least >> (shift + 8);
      if (same) atomicAdd(&bins[bits >> shift & 255], 1);
    }
    __syncthreads();
    if (thread == 0) {
      int above = 0, bin = 255;
      while (bin > 0 && above + bins[bin] < equal) above += bins[bin--];
      found[0] = static_cast<uint32_t>(bin);
      found[1] = static_cast<uint32_t>(above);
    }
    __syncthreads();
    least |= found[0] << shift;
    equal -= static_cast<int>(found[1]);
    __syncthreads();
  }
  int written = 0, ties = 0;
  for (int first = 0; first < seen && written < most; first += kBestThreads) {
    const int p = first + thread;
    const uint32_t bits = p < seen ? rising_bits(own[p]) : 0;
    const bool is_tie = p < seen && bits == least;
    const int2 tie = count_before(is_tie, counts);
    const bool taken = p < seen && (bits > least || (is_tie && ties + tie.x < equal));
    const int2 place = count_before(taken, counts);
    if (taken) out[written + place.x] = p;
    ties += tie.y;
    written += place.y;
  }
}

}  // namespace ktx::kernels
