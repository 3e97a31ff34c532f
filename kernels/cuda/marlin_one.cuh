// Products of one token with marlin weights, at the speed of the memory.
//
// A block of up to 8 warps takes 1 to 8 pairs of strips of 16 rows; the warps of a pair share its tiles in
// turns and add up at the end, in a fixed order. Each warp has a ring of tiles in shared
// memory that it fills itself (marlin_ring.cuh), so nothing waits for the block before the
// end.
//
// The weights are the A operand of mma.m16n8k16. The eight columns of B would be tokens;
// with one token they are the eight groups of 32 columns of a tile instead: for group c
// only column c holds x. So after a tile column c of the sums is the product of group c,
// and each lane applies the scales of two groups (a quarter of them) to raw sums of codes
// (marlin_raw.cuh). Q6_K, with its 16 groups of 16, uses two such sets of sums. The lane
// that needs a piece of x is the lane that loads it. x is taken in F16, scaled by a power
// of two per 256 columns; all else is F32, so only x is rounded.
//
// Roofline: bytes of the weights / memory bandwidth. About 2 instructions a weight and lane
// for Q4_K. Shared memory: 8 rings of 2 to 4 stages, at most 110 KiB, two blocks to a
// multiprocessor.
#pragma once

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/marlin_products.cuh"
#include "kernels/cuda/marlin_raw.cuh"
#include "kernels/cuda/marlin_ring.cuh"

namespace ktx::kernels {

// The largest of all lanes of a value that is not negative.
__device__ __forceinline__ float warp_largest(float v) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v)));
#else
  return warp_max(v);
#endif
}

// Eight elements of x as halves, their scale taken out, and the sum of the halves.
struct XPiece {
  float4 low, high;  // 0 where there are none
  __device__ __forceinline__ void load(const float* x, int k, int cols, bool wanted) {
    low = high = float4{0, 0, 0, 0};
    if (wanted && k < cols) {
      low = *reinterpret_cast<const float4*>(x + k);
      high = *(reinterpret_cast<const float4*>(x + k) + 1);
    }
  }
  __device__ __forceinline__ float largest() const {
    return fmaxf(fmaxf(fmaxf(fabsf(low.x), fabsf(low.y)), fmaxf(fabsf(low.z), fabsf(low.w))),
                 fmaxf(fmaxf(fabsf(high.x), fabsf(high.y)), fmaxf(fabsf(high.z), fabsf(high.w))));
  }
  __device__ __forceinline__ float to_halves(float inverse, uint32_t (&b)[4]) const {
    b[0] = pack_halves(low.x * inverse, low.y * inverse);
    b[1] = pack_halves(low.z * inverse, low.w * inverse);
    b[2] = pack_halves(high.x * inverse, high.y * inverse);
    b[3] = pack_halves(high.z * inverse, high.w * inverse);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = __half22float2(as_half2(b[i]));
      sum += v.x + v.y;
    }
    return sum;
  }
};

// kSources: strips of a warp; kPaired: one of gate and one of up.
template <DType kType, int kSources, bool kPaired>
__global__ void __launch_bounds__(kRingThreads, 2) marlin_one(MarlinProduct p, int block_strips) {
  using Raw = MarlinRaw<kType>;
  using Tile = MarlinTile<kType>;
  using Ring = MarlinRing<kType, kSources>;
  constexpr int kSets = Raw::kSets;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float sums[kRingWarps][kSources][16];
  __shared__ int found;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int g = lane / 4, t = lane % 4;

  // Who is served: a head, or the pair at place blockIdx.y of `order`.
  let_next_kernel_start();
  int matrix = static_cast<int>(blockIdx.y), pair = 0;
  const float* x = p.x + matrix * p.x_head;
  float* y = p.y + matrix * p.y_head;
  if (p.offsets) {
    wait_for_inputs();
    const int place = matrix;
    if (thread == 0) found = -1;
    __syncthreads();
    for (int e = thread; e < p.experts; e += static_cast<int>(blockDim.x)) {
      if (p.offsets[e] <= place && place < p.offsets[e + 1]) found = e;
    }
    __syncthreads();
    matrix = found;
    pair = p.order[place];
    if (p.places && blockIdx.x == 0 && thread == 0) p.places[pair] = matrix < 0 ? -1 : place;
    if (matrix < 0) return;
    x = p.x + pair / p.x_div * p.x_stride;
    y = p.y + pair * p.y_stride;
  }

  const int warps_per_strip = static_cast<int>(blockDim.x) / 32 / block_strips;
  constexpr int kRowStrips = kPaired ? 1 : kSources;  // strips of rows of a warp
  const int strip_begin =
      p.strip_begin() + static_cast<int>(blockIdx.x) * block_strips * kRowStrips;
  const int strip_end = p.strip_end();
  Ring ring(p, matrix, kPaired, strip_begin + warp / warps_per_strip * kRowStrips, strip_end,
            warp % warps_per_strip, warps_per_strip, dynamic_shared, warp, lane);
  XPiece next[kSets];
  const auto load_x = [&](int item) {
    const int k = ring.tile(item) * 256;
    if constexpr (kSets == 1) {
      next[0].load(x, k + 8 * lane, p.cols, item < ring.count);
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        next[h].load(x, k + 128 * h + 32 * (g / 2) + 8 * t, p.cols, item < ring.count && t / 2 == g % 2);
      }
    }
  };

  ring.start(lane);
  if (!p.offsets) wait_for_inputs();
  load_x(0);
  float total[kSources][2] = {};  // rows g and g + 8
  for (int item = 0; item < ring.count; ++item) {
    uint32_t b[kSets][4];
    float x_sum[kSets], largest = next[0].largest();
    if constexpr (kSets == 2) largest = fmaxf(largest, next[1].largest());
    int exponent = static_cast<int>(__float_as_uint(warp_largest(largest)) >> 23) - 127 - 9;
    exponent = max(-100, min(100, exponent));
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
#pragma unroll
    for (int h = 0; h < kSets; ++h) {
      float sum = next[h].to_halves(inverse, b[h]);
      sum += __shfl_xor_sync(~0u, sum, 1);
      x_sum[h] = sum + __shfl_xor_sync(~0u, sum, 2);
    }
    load_x(item + 1);
    ring.wait(lane);
    const int spans = ring.spans(item);
    float product[kSources][kSets][4] = {};
#pragma unroll
    for (int m = 0; m < kSources; ++m) {
      Raw raw;
      raw.load(ring.stage(m), spans, lane);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const int set = kSets == 2 ? c / 4 : 0;
        const bool mine = kSets == 2 ? g / 2 == c % 4 : g == c;
        uint32_t a[2][4];
        raw.fragment(c, a);
        mma_f16(product[m][set], a[0], mine ? b[set][0] : 0, mine ? b[set][1] : 0);
        mma_f16(product[m][set], a[1], mine ? b[set][2] : 0, mine ? b[set][3] : 0);
      }
    }
    // Columns 2t and 2t + 1 are groups 2t, 2t + 1; of Q6_K the halves of group 4h + t.
#pragma unroll
    for (int h = 0; h < kSets; ++h) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float sum = __shfl_sync(~0u, x_sum[h], 4 * (2 * t + e));
        const int c = kSets == 2 ? 4 * h + t : 2 * t + e;
        if (!Tile::kWide && c >= 2 * spans) continue;
#pragma unroll
        for (int m = 0; m < kSources; ++m) {
          const uint8_t* tile = ring.stage(m);
          const ScaleOffset s0 = Raw::scale_offset(tile, spans, g, c, e);
          const ScaleOffset s1 = Raw::scale_offset(tile, spans, g + 8, c, e);
          const float q0 = product[m][h][e] - Raw::kEvenZero * sum;
          const float q1 = product[m][h][2 + e] * Raw::kOddFactor - Raw::kOddZero * sum;
          total[m][0] += (s0.scale * q0 + s0.offset * sum) * scale;
          total[m][1] += (s1.scale * q1 + s1.offset * sum) * scale;
        }
      }
    }
  }
  wait_async<0>();
#pragma unroll
  for (int m = 0; m < kSources; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float v = total[m][r];
      v += __shfl_xor_sync(~0u, v, 1);
      v += __shfl_xor_sync(~0u, v, 2);
      if (t == 0) sums[warp][m][g + 8 * r] = v;
    }
  }
  __syncthreads();
  if (thread >= block_strips * kRowStrips * 16) return;
  const int n = strip_begin * 16 + thread - p.row_begin;
  if (n < 0 || n >= p.row_count) return;
  const int strip = thread / 16;  // of the block
  float v[kPaired ? 2 : 1] = {};
  for (int w = 0; w < warps_per_strip; ++w) {
    if constexpr (kPaired) {
      v[0] += sums[strip * warps_per_strip + w][0][thread % 16];
      v[1] += sums[strip * warps_per_strip + w][1][thread % 16];
    } else {
      v[0] += sums[strip / kRowStrips * warps_per_strip + w][strip % kRowStrips][thread % 16];
    }
  }
  if constexpr (kPaired) {
    y[n] = silu(v[0]) * v[1];
  } else {
    if (p.bias) v[0] += p.bias[n];
    y[n] = p.accumulate ? y[n] + v[0] : v[0];
  }
}

template <DType kType, int kSources, bool kPaired>
Status launch_one(const MarlinProduct& p, int work, cudaStream_t stream) {
  const int groups = kPaired ? p.strips() : ceil_div(p.strips(), kSources);
  const RingShape shape = ring_shape<kType, kSources>(groups, work, p.cols);
  const dim3 grid(ceil_div(groups, shape.strips), work);
  return launch("one token times marlin weights", marlin_one<kType, kSources, kPaired>, grid,
                32 * shape.warps, shape.bytes, stream, p, shape.strips);
}

template <DType kType>
Status launch_one_type(const MarlinProduct& p, cudaStream_t stream) {
  const int work = p.offsets ? p.tokens : p.matrices;
  if (p.w[1]) return launch_one<kType, 2, true>(p, work, stream);
  return two_strips(p.strips(), work, p.cols) ? launch_one<kType, 2, false>(p, work, stream)
                                              : launch_one<kType, 1, false>(p, work, stream);
}

}  // namespace ktx::kernels
