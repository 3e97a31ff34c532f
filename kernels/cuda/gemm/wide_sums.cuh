// The end of an item of marlin_gemm_wgmma.cuh: the sums of its warps, and of the blocks of a
// cluster, which have a range of columns each (split-K), in the order of the ranges.
//
//   const WidePass pass = {4, 0};                                // tokens 0 to 15
//   store_wide_sums(sum, sums, pass, strip, lane);               // of a strip
//   // a barrier of the block
//   add_wide_sums<256, false>(sums, pass, tokens, split, splits, begin, write);
//
// Short code: it is met cold. A warp that had all columns needs no other: write_own_sums.
#pragma once

#include "kernels/cuda/common/cluster_sums.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kWideSumPitch = 20;  // floats a token: 16 rows, and no two lanes at one bank

// The 2^log tokens from `begin` on.
struct WidePass {
  int log, begin;
};
__host__ __device__ constexpr int log2_of(int power) {
  return power == 1 ? 0 : 1 + log2_of(power / 2);
}

// sums: [strip][token of the pass][row].
template <int kEights>
__device__ __forceinline__ void store_wide_sums(const float (&sum)[kEights][4], float* sums,
                                                const WidePass& pass, int strip, int lane) {
  float* to = sums + ((strip << pass.log) + lane % 4 * 2) * kWideSumPitch + lane / 4;
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
    const int token = 8 * n - pass.begin;
    if (token < 0 || token >> pass.log != 0) continue;
#pragma unroll
    for (int v = 0; v < 4; ++v) to[(token + v % 2) * kWideSumPitch + v / 2 * 8] = sum[n][v];
  }
}

// The first kThreads threads of the cluster's blocks. Calls begin(token, strip, quad of rows),
// which gives a float4, and with it write(token, strip, quad, that, float4 (&)[1 or, of gate and
// up, 2]) once for each token of the pass below `tokens`; several are asked for at once.
template <int kThreads, bool kPaired, class Begin, class Write>
__device__ __forceinline__ void add_wide_sums(const float* sums, const WidePass& pass, int tokens,
                                              int split, int splits, Begin begin, Write write) {
  constexpr int kSources = kPaired ? 2 : 1, kStrips = 16 / kSources, kAtOnce = 4;
  const int quads = kStrips * 4 << pass.log, mask = (1 << pass.log) - 1;
  if (splits > 1) meet_cluster();
#pragma unroll 1
  for (int first = split * kThreads + static_cast<int>(threadIdx.x); first < quads;
       first += kAtOnce * splits * kThreads) {
    float4 before[kAtOnce], v[kAtOnce][kSources] = {};
    int token[kAtOnce], strip[kAtOnce];
    const int quad = first % 4;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int out = first + i * splits * kThreads;
      token[i] = pass.begin + (out / 4 & mask), strip[i] = out / 4 >> pass.log;
      if (out >= quads) token[i] = tokens;
      if (token[i] < tokens) before[i] = begin(token[i], strip[i], quad);
    }
    const auto add = [&](auto part_of) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (token[i] >= tokens) continue;
#pragma unroll
        for (int m = 0; m < kSources; ++m) {
          const float4 part = part_of(reinterpret_cast<const float4*>(
              sums +
              ((strip[i] * kSources + m << pass.log) + token[i] - pass.begin) * kWideSumPitch +
              4 * quad));
          v[i][m].x += part.x, v[i][m].y += part.y, v[i][m].z += part.z, v[i][m].w += part.w;
        }
      }
    };
    if (splits == 1) add([](const float4* from) { return *from; });
#pragma unroll 4
    for (int rank = 0; splits > 1 && rank < splits; ++rank) {
      add([&](const float4* from) { return load_of_rank(from, rank); });
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (token[i] < tokens) write(token[i], strip[i], quad, before[i], v[i]);
    }
  }
  if (splits > 1) wait_for_cluster();  // no block leaves while its sums are read
}

// Four rows from `out` on of a token (whole_quads: they are 16 aligned bytes of y): what they have
// before a product adds to it ...
__device__ __forceinline__ float4 read_quad(const MarlinProduct& p, bool whole_quads, int out,
                                            const float* y) {
  if (!p.accumulate || out <= -4 || out >= p.row_count) return {0, 0, 0, 0};
  if (whole_quads) return *reinterpret_cast<const float4*>(y + out);
  const auto at = [&](int i) { return out >= -i && out + i < p.row_count ? y[out + i] : 0; };
  return {at(0), at(1), at(2), at(3)};
}
// ... and after, of sums of one matrix or (paired) of gate and up.
template <bool kPaired>
__device__ __forceinline__ void write_quad(const MarlinProduct& p, bool whole_quads, int out,
                                           float4 before, const float4 (&v)[kPaired ? 2 : 1],
                                           float scale, float* y, int matrix) {
  float value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool bias = p.bias[0] && out >= -i && out + i < p.row_count;
    value[i] = element(v[0], i) * scale + (bias ? p.bias_of(0, matrix, out + i) : 0);
    if constexpr (kPaired) {
      const float up = element(v[1], i) * scale + (bias ? p.bias_of(1, matrix, out + i) : 0);
      value[i] = row_glu(p.glu, value[i], up);
    }
    value[i] += element(before, i);
  }
  if (out <= -4 || out >= p.row_count) return;
  if (whole_quads) {
    *reinterpret_cast<float4*>(y + out) = {value[0], value[1], value[2], value[3]};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (out >= -i && out + i < p.row_count) y[out + i] = value[i];
  }
}

// Whether write_own_sums takes this product: with gate and up, only the unit that most models have.
// 128 tokens of one matrix are quicker in quads of rows.
template <int kTokens, bool kPaired>
__host__ __device__ inline bool writes_own_sums(const MarlinProduct& p) {
  const bool silu = p.glu.activation == static_cast<int32_t>(Activation::Silu) && p.glu.limit <= 0;
  return (!kPaired || silu) && !p.accumulate && (kTokens <= 64 || kPaired);
}

// Writes the sums of a warp that had all columns, from its registers: eight rows in a row of 32
// bytes. The strips' rows begin at `first_out`; kPaired: they are of gate and of up.
template <bool kPaired, int kStrips, int kEights>
__device__ __forceinline__ void write_own_sums(const MarlinProduct& p,
                                               const float (&sum)[kStrips][kEights][4], int tokens,
                                               int first_out, const float* scale,
                                               float* const* y_row, int matrix, int lane) {
  constexpr int kOuts = kPaired ? 2 : 2 * kStrips;  // of a token
  const auto row_of = [](int i) { return i / 2 * 16 + i % 2 * 8; };
  first_out += lane / 4;
  bool inside[kOuts];
  float bias[kOuts], up_bias[kOuts] = {};
#pragma unroll
  for (int i = 0; i < kOuts; ++i) {
    const int out = first_out + row_of(i);
    inside[i] = out >= 0 && out < p.row_count;
    bias[i] = inside[i] ? p.bias_of(0, matrix, out) : 0;
    if constexpr (kPaired) up_bias[i] = inside[i] ? p.bias_of(1, matrix, out) : 0;
  }
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int token = 8 * n + lane % 4 * 2 + t;
      if (token >= tokens) continue;
      const float factor = scale[token];
      float* y = y_row[token] + first_out;
#pragma unroll
      for (int i = 0; i < kOuts; ++i) {
        float value;
        if constexpr (kPaired) {
          const float up = sum[1][n][i * 2 + t] * factor + up_bias[i];
          value = row_silu(sum[0][n][i * 2 + t] * factor + bias[i]) * up;
        } else {
          value = sum[i / 2][n][i % 2 * 2 + t] * factor + bias[i];
        }
        if (inside[i]) y[row_of(i)] = value;
      }
    }
  }
}

}  // namespace ktx::kernels
