// Products of 1 to 16 tokens with marlin weights, at the speed of the memory.
//
// The weights are the A operand of mma.m16n8k16 (16 rows x 16 columns), the tokens its
// eight columns, so that 1 token and 8 cost the same. A block of 8 warps takes 1 to 8
// strips of 16 rows; the warps of a strip share its tiles (256 columns) in turns and add up
// at the end, in a fixed order. Each warp holds the next tile in registers while it works
// on one. Stages:
//
//   first tiles on their way -> x to shared memory in F16, scaled per token and range of
//   columns -> tiles: decode 32 columns, 2 products -> sums of warps -> write
//
// Roofline: bytes of the weights / memory bandwidth; per 512 weights of a strip 2 products,
// about 2.6 instructions a weight and lane for Q4_K. Shared memory: tokens * columns * 2
// bytes (columns in ranges where that exceeds its budget) + the sums. 128 registers.
#pragma once

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/marlin_products.cuh"
#include "kernels/cuda/marlin_tile.cuh"

namespace ktx::kernels {

constexpr int kFewWarps = 8;
constexpr int kFewThreads = 32 * kFewWarps;

struct FewShape {
  int strips;       // of a block: 1, 2, 4 or 8
  int range;        // columns of x in shared memory, a multiple of 256
  int groups;       // of strips
};

struct FewShared {
  float largest[kFewWarps][kFewTokens];
  float scale[kFewTokens];
  const float* x[kFewTokens];
  float* y[kFewTokens];
};

// x[.][begin, begin + width) as halves with a power of two per token taken out. Columns
// from `cols` on are zeros. Half k of token i goes to piece (k / 32, i, k % 32 / 8).
inline __device__ void stage_x(FewShared& shared, uint4* xs, int tokens, int begin, int width,
                               int cols) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < tokens; ++i) {
    float largest = 0;
    for (int k = begin + 4 * thread; k < min(begin + width, cols); k += 4 * kFewThreads) {
      const float4 v = *reinterpret_cast<const float4*>(shared.x[i] + k);
      largest = fmaxf(fmaxf(fmaxf(largest, fabsf(v.x)), fmaxf(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
    }
    largest = warp_max(largest);
    if (thread % 32 == 0) shared.largest[thread / 32][i] = largest;
  }
  __syncthreads();
  if (thread < tokens) {
    float largest = 0;
    for (int w = 0; w < kFewWarps; ++w) largest = fmaxf(largest, shared.largest[w][thread]);
    // 2^k with largest / 2^k in [512, 1024); of zero, infinity and NaN any will do.
    int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 9;
    exponent = max(-100, min(100, exponent));
    shared.scale[thread] = __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
  }
  __syncthreads();
  for (int item = thread; item < tokens * (width / 8); item += kFewThreads) {
    const int i = item / (width / 8), k = item % (width / 8) * 8;
    uint4 halves{0, 0, 0, 0};
    if (begin + k < cols) {
      const float inverse = 1 / shared.scale[i];
      const float4* x = reinterpret_cast<const float4*>(shared.x[i] + begin + k);
      const float4 a = x[0], b = x[1];
      halves.x = pack_halves(a.x * inverse, a.y * inverse);
      halves.y = pack_halves(a.z * inverse, a.w * inverse);
      halves.z = pack_halves(b.x * inverse, b.y * inverse);
      halves.w = pack_halves(b.z * inverse, b.w * inverse);
    }
    xs[(k / 32 * tokens + i) * 4 + k % 32 / 8] = halves;
  }
  __syncthreads();
}

// kColumns: 8 * kColumns tokens at most. kMatrices: 2 for silu(w0 . x) * (w1 . x).
template <DType kType, int kColumns, int kMatrices>
__global__ void __launch_bounds__(kFewThreads, 2) marlin_few(MarlinProduct p, FewShape shape) {
  using Tile = MarlinTile<kType>;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ FewShared shared;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;

  // Who is served.
  int matrix = static_cast<int>(blockIdx.y), tokens;
  if (p.offsets) {
    const ExpertPiece piece =
        find_expert_piece(p.offsets, p.experts, static_cast<int>(blockIdx.y), 8 * kColumns);
    if (p.places && blockIdx.x == 0 && blockIdx.y == 0) {  // pairs of no expert
      for (int i = p.offsets[p.experts] + thread; i < p.tokens; i += kFewThreads) {
        p.places[p.order[i]] = -1;
      }
    }
    if (piece.expert < 0) return;
    matrix = piece.expert;
    tokens = piece.count;
    if (thread < tokens) {
      const int pair = p.order[piece.first + thread];
      shared.x[thread] = p.x + pair / p.x_div * p.x_stride;
      shared.y[thread] = p.y + pair * p.y_stride;
      if (p.places && blockIdx.x == 0) p.places[pair] = piece.first + thread;
    }
  } else {
    const int first = static_cast<int>(blockIdx.z) * 8 * kColumns;
    tokens = min(8 * kColumns, p.tokens - first);
    if (thread < tokens) {
      shared.x[thread] = p.x + (first + thread) * p.x_stride + matrix * p.x_head;
      shared.y[thread] = p.y + (first + thread) * p.y_stride + matrix * p.y_head;
    }
  }
  __syncthreads();

  const int padded = (p.cols + 255) / 256 * 256;
  uint4* xs = dynamic_shared;
  float* sums = reinterpret_cast<float*>(xs + tokens * (shape.range / 8));
  const int warps_per_strip = kFewWarps / shape.strips;
  const int own_strip = warp / warps_per_strip, part = warp % warps_per_strip;
  const int strip_begin = p.row_begin / 16;
  const int strip_end = (p.row_begin + p.row_count + 15) / 16;
  const MarlinTiles<Tile> tiles(p.cols);
  bool staged = false;

  for (int group = static_cast<int>(blockIdx.x); group < shape.groups; group += gridDim.x) {
    const int strip_number = strip_begin + group * shape.strips + own_strip;
    const bool live = strip_number < strip_end;
    const uint8_t* strip[kMatrices];
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      strip[m] = p.w[m] + matrix * p.matrix_bytes[m] + strip_number * p.strip_bytes;
    }
    float total[kMatrices][kColumns][4] = {};
    for (int begin = 0; begin < padded; begin += shape.range) {
      const int width = min(shape.range, padded - begin);
      const int first = begin / 256, end = live ? (begin + width) / 256 : 0;
      Tile current[kMatrices];
      int index = first + part;
      if (index < end) {
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
          current[m].template load<true>(strip[m] + tiles.offset(index), tiles.spans(index), lane);
        }
      }
      if (!staged) stage_x(shared, xs, tokens, begin, width, p.cols);
      staged = shape.range >= padded;
      float sum[kMatrices][kColumns][4] = {};
      for (; index < end; index += warps_per_strip) {
        const uint4* x = xs + (index - first) * 32 * tokens + lane;
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
          Tile next;
          if (index + warps_per_strip < end) {
            next.template load<true>(strip[m] + tiles.offset(index + warps_per_strip),
                                     tiles.spans(index + warps_per_strip), lane);
          }
#pragma unroll
          for (int c = 0; c < 8; ++c) {
            uint32_t a[8];
            current[m].fragment(c, lane, a);
            const uint32_t(&a0)[4] = *reinterpret_cast<uint32_t(*)[4]>(a);
            const uint32_t(&a1)[4] = *reinterpret_cast<uint32_t(*)[4]>(a + 4);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
              const uint4 b = lane / 4 + 8 * n < tokens ? x[4 * c * tokens + 32 * n]
                                                        : uint4{0, 0, 0, 0};
              mma_f16(sum[m][n], a0, b.x, b.y);
              mma_f16(sum[m][n], a1, b.z, b.w);
            }
          }
          current[m] = next;
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int token = 8 * n + lane % 4 * 2 + v % 2;
          const float scale = token < tokens ? shared.scale[token] : 0;
#pragma unroll
          for (int m = 0; m < kMatrices; ++m) total[m][n][v] += sum[m][n][v] * scale;
        }
      }
      if (!staged) __syncthreads();  // before x is overwritten
    }

    // Sums of the warps of a strip, in rising order of their first tile.
    constexpr int kSums = kMatrices * 16 * 8 * kColumns;  // of a warp: [matrix][token][row]
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int token = 8 * n + lane % 4 * 2 + v % 2, row = lane / 4 + v / 2 * 8;
          sums[warp * kSums + (m * 8 * kColumns + token) * 16 + row] = total[m][n][v];
        }
      }
    }
    __syncthreads();
    for (int out = thread; out < tokens * shape.strips * 16; out += kFewThreads) {
      const int row = out % 16, local = out / 16 % shape.strips, token = out / 16 / shape.strips;
      const int n = (strip_begin + group * shape.strips + local) * 16 + row - p.row_begin;
      if (n < 0 || n >= p.row_count) continue;
      float v[kMatrices];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        v[m] = 0;
        for (int w = 0; w < warps_per_strip; ++w) {
          v[m] += sums[(local * warps_per_strip + w) * kSums + (m * 8 * kColumns + token) * 16 + row];
        }
      }
      float* y = shared.y[token] + n;
      if constexpr (kMatrices == 2) {
        *y = silu(v[0]) * v[1];
      } else {
        if (p.bias) v[0] += p.bias[n];
        *y = p.accumulate ? *y + v[0] : v[0];
      }
    }
    __syncthreads();
  }
}

template <DType kType, int kColumns, int kMatrices>
Status launch_few(const MarlinProduct& p, cudaStream_t stream) {
  const int strips = ceil_div(p.row_begin + p.row_count, 16) - p.row_begin / 16;
  const int work = p.offsets ? expert_pieces(p.tokens, p.experts, 8 * kColumns) : p.matrices;
  const int tokens = min(p.tokens, 8 * kColumns);  // of a block
  const int pieces = p.offsets ? 1 : ceil_div(p.tokens, tokens);
  const int tiles = ceil_div(p.cols, 256), processors = multiprocessors();
  FewShape shape;
  // As many strips to a block as still give every processor some blocks, and no more warps
  // to a strip than it has tiles.
  shape.strips = 1;
  while (shape.strips < kFewWarps && (ceil_div(strips, 2 * shape.strips) * work * 2 >= 3 * processors ||
                                      kFewWarps / shape.strips > tiles)) {
    shape.strips *= 2;
  }
  shape.groups = ceil_div(strips, shape.strips);
  const int limit = shared_memory_limit(), budget = min(limit - 2048, 96 * 1024);
  const int sums = kFewWarps * kMatrices * 16 * 8 * kColumns * 4;
  const int range = (budget - sums) / (tokens * 2) / 256 * 256;
  shape.range = min(tiles * 256, range);
  const int shared = tokens * shape.range * 2 + sums;
  const dim3 grid(work * pieces == 1 ? min(shape.groups, 4 * processors) : shape.groups, work, pieces);
  return launch("few tokens times marlin weights", marlin_few<kType, kColumns, kMatrices>, grid,
                kFewThreads, shared, stream, p, shape);
}

template <DType kType>
Status launch_few_type(const MarlinProduct& p, cudaStream_t stream) {
  // Pieces of experts: with few pairs to an expert eight in a piece are enough.
  const bool wide = p.offsets ? p.tokens > 8 * p.experts : p.tokens > 8;
  if (p.w[1]) return wide ? launch_few<kType, 2, 2>(p, stream) : launch_few<kType, 1, 2>(p, stream);
  return wide ? launch_few<kType, 2, 1>(p, stream) : launch_few<kType, 1, 1>(p, stream);
}

}  // namespace ktx::kernels
