// matmul_heads with the transposed weight (MLA with an unsplit attn_kv_b):
//
//   y[t, h, n] = sum over k of x[t, h, k] * w[h][row_begin + k][n]
//
// Up to 16 tokens are the rows of the product, the columns of a tile its columns, and the
// 16 rows of a strip its depth: the A fragments of the weights, transposed in registers
// (movmatrix), are the B fragments. Each of 8 warps takes every eighth strip of a tile of
// 256 columns; sums go through shared memory, 32 columns at a time, in a fixed order.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/matmul/product_launcher.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

struct StagedRows {
  float largest[kWarps][kSkinnyTokens];
  float scale[kSkinnyTokens];
  const float* x[kSkinnyTokens];
};

// x[.][begin, begin + width) as halves with a power of two per token taken out. Columns
// from `cols` on are zeros. Half k of token i goes to piece (k / 32, i, k % 32 / 8).
__device__ void stage_x(StagedRows& shared, uint4* xs, int tokens, int begin, int width, int cols) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < tokens; ++i) {
    float largest = 0;
    for (int k = begin + 4 * thread; k < min(begin + width, cols); k += 4 * kThreads) {
      const float4 v = *reinterpret_cast<const float4*>(shared.x[i] + k);
      largest = fmaxf(fmaxf(fmaxf(largest, fabsf(v.x)), fmaxf(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
    }
    largest = warp_max(largest);
    if (thread % 32 == 0) shared.largest[thread / 32][i] = largest;
  }
  __syncthreads();
  if (thread < tokens) {
    float largest = 0;
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, shared.largest[w][thread]);
    // 2^k with largest / 2^k in [512, 1024); of zero, infinity and NaN any will do.
    int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 9;
    exponent = max(-100, min(100, exponent));
    shared.scale[thread] = __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
  }
  __syncthreads();
  for (int item = thread; item < tokens * (width / 8); item += kThreads) {
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

__device__ __forceinline__ uint32_t transpose8x8(uint32_t a) {
  uint32_t d;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}

template <DType kType>
__global__ void __launch_bounds__(kThreads) marlin_transposed(MarlinProduct p) {
  begin_kernel();
  using Tile = MarlinTile<kType>;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ StagedRows shared;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int head = static_cast<int>(blockIdx.y),
            first = static_cast<int>(blockIdx.z) * kSkinnyTokens;
  const int tokens = min(kSkinnyTokens, p.tokens - first);
  if (thread < tokens) shared.x[thread] = p.x + (first + thread) * p.x_stride + head * p.x_head;
  __syncthreads();
  const int width = (p.row_count + 31) / 32 * 32;
  uint4* xs = dynamic_shared;
  float* sums = reinterpret_cast<float*>(xs + tokens * (width / 8));  // [warp][token][32]
  stage_x(shared, xs, tokens, 0, width, p.row_count);
  const half* halves = reinterpret_cast<const half*>(xs);
  const auto x_half = [&](int token, int k) {
    const bool live = token < tokens && k >= 0 && k < p.row_count;
    return live ? halves[(k / 32 * tokens + token) * 32 + k % 32] : __ushort_as_half(0);
  };

  const MarlinTiles<Tile> tiles(p.cols);
  const int tile_number = static_cast<int>(blockIdx.x);
  float sum[8][4][4] = {};  // [chunk][pair of columns of a lane][c]
  for (int strip = p.strip_begin() + warp; strip < p.strip_end(); strip += kWarps) {
    Tile tile;
    tile.template load<true>(
        p.w[0] + head * p.matrix_bytes[0] + strip * p.strip_bytes + tiles.offset(tile_number),
        tiles.spans(tile_number), lane);
    const int k = strip * 16 - p.row_begin + lane % 4 * 2, token = lane / 4;
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = token + i % 2 * 8, from = k + i / 2 * 8;
      a[i] = as_bits(__halves2half2(x_half(row, from), x_half(row, from + 1)));
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      uint32_t w[8];
      tile.fragment(c, w);
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // columns 8t + 2j, 8t + 2j + 1
        mma_f16(sum[c][j], a, transpose8x8(w[2 * j]), transpose8x8(w[2 * j + 1]));
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        // Column number 2t + v % 2 of the product is lane (2t + v % 2) / 2's element v % 2.
        const int token = lane / 4 + v / 2 * 8, col = lane % 4 * 8 + 2 * j + v % 2;
        sums[(warp * kSkinnyTokens + token) * 32 + col] = sum[c][j][v];
      }
    }
    __syncthreads();
    for (int out = thread; out < tokens * 32; out += kThreads) {
      const int token = out / 32, n = tile_number * 256 + c * 32 + out % 32;
      if (n >= p.cols) continue;
      float v = 0;
      for (int i = 0; i < kWarps; ++i) v += sums[(i * kSkinnyTokens + token) * 32 + out % 32];
      p.y[(first + token) * p.y_stride + head * p.y_head + n] = v * shared.scale[token];
    }
    __syncthreads();
  }
}

Status launch_transposed(const ProductArgs& a, cudaStream_t stream) {
  if (a.p.row_count % 8 != 0) {
    return Error{"matmul_heads transposed: " + std::to_string(a.p.row_count) +
                 " rows of a head, needs a multiple of 8"};
  }
  const MarlinProduct& p = a.p;
  const int width = ceil_div(p.row_count, 32) * 32;
  const int shared = kSkinnyTokens * width * 2 + kWarps * kSkinnyTokens * 32 * 4;
  const dim3 grid(ceil_div(p.cols, 256), a.p.matrices, ceil_div(p.tokens, kSkinnyTokens));
  return for_marlin_type<Status>(
      a.w.dtype, Error{"not a format of marlin weights"}, [&]<DType kType>() {
        return launch("matmul_heads transposed", marlin_transposed<kType>, grid, kThreads, shared,
                      stream, p);
      });
}

}  // namespace

const ProductLauncher product_launchers::marlin_transposed{
    .takes = [](const ProductArgs& a) { return a.transposed; }, .launch = launch_transposed};

}  // namespace ktx::kernels
