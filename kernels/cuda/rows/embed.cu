// Rows of the embedding table, and those that come with a pass. GGUF rows are decoded exactly to
// F32, a thread an element; a marlin table (tied to the output matrix) through its tiles, in F16.
#include <cuda_bf16.h>

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/rows/cuda_rows.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/blocks.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

__device__ float half_at(const void* p) {
  const uint8_t* bytes = static_cast<const uint8_t*>(p);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bytes[0] | bytes[1] << 8)));
}
template <class Bytes>
__device__ int nibble(const Bytes& codes, int i) {
  return codes[i % 16] >> (i / 16 * 4) & 15;
}
template <class Bytes>
__device__ int fifth(const Bytes& high, int i) {
  return (high[i / 8] >> (i % 8) & 1) << 4;
}
__device__ int code4(const uint8_t* codes, int i) {
  return codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}
__device__ int2 scale_min(const uint8_t* s, int g) {
  if (g < 4) return {s[g] & 63, s[g + 4] & 63};
  return {(s[g + 4] & 15) | (s[g - 4] >> 6) << 4, (s[g + 4] >> 4) | (s[g] >> 6) << 4};
}
__device__ float iq4_value(int code) {
  const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
  return values[code];
}
__device__ float mxfp4_value(int code) {
  const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return doubled[code];
}

// Weight i of a block; equations in blocks.h.
__device__ float decode(const BlockF32& b, int) {
  float v;
  memcpy(&v, &b, 4);
  return v;
}
__device__ float decode(const BlockF16& b, int) {
  return half_at(&b);
}
__device__ float decode(const BlockBF16& b, int) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&b);
  return __uint_as_float(static_cast<uint32_t>(bytes[0] | bytes[1] << 8) << 16);
}
__device__ float decode(const BlockQ4_0& b, int i) {
  return half_at(&b) * static_cast<float>(nibble(b.codes, i) - 8);
}
__device__ float decode(const BlockQ4_1& b, int i) {
  return __fadd_rn(__fmul_rn(half_at(&b), static_cast<float>(nibble(b.codes, i))),
                   half_at(reinterpret_cast<const uint8_t*>(&b) + 2));
}
__device__ float decode(const BlockQ5_0& b, int i) {
  return half_at(&b) * static_cast<float>(nibble(b.codes, i) + fifth(b.high, i) - 16);
}
__device__ float decode(const BlockQ5_1& b, int i) {
  return __fadd_rn(
      __fmul_rn(half_at(&b), static_cast<float>(nibble(b.codes, i) + fifth(b.high, i))),
      half_at(reinterpret_cast<const uint8_t*>(&b) + 2));
}
__device__ float decode(const BlockQ8_0& b, int i) {
  return half_at(&b) * static_cast<float>(b.codes[i]);
}
__device__ float decode(const BlockIQ4_NL& b, int i) {
  return half_at(&b) * iq4_value(nibble(b.codes, i));
}
__device__ float decode(const BlockMXFP4& b, int i) {
  const uint32_t bits = b.exponent < 2 ? 0x00200000u << b.exponent : (b.exponent - 1u) << 23;
  return __uint_as_float(bits) * mxfp4_value(nibble(b.codes, i));
}
template <class Block>
__device__ float decode_scale_min(const Block& b, int i, int code) {
  const int2 group = scale_min(b.scales, i / 32);
  const float scale = half_at(&b) * static_cast<float>(group.x);
  const float min = half_at(reinterpret_cast<const uint8_t*>(&b) + 2) * static_cast<float>(group.y);
  return __fsub_rn(__fmul_rn(scale, static_cast<float>(code)), min);
}
__device__ float decode(const BlockQ4_K& b, int i) {
  return decode_scale_min(b, i, code4(b.codes, i));
}
__device__ float decode(const BlockQ5_K& b, int i) {
  return decode_scale_min(b, i, code4(b.codes, i) + ((b.high[i % 32] >> (i / 32) & 1) << 4));
}
__device__ float decode(const BlockQ6_K& b, int i) {
  const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
  const int low = b.low[64 * half + 32 * (quarter % 2) + j] >> (quarter / 2 * 4) & 15;
  const int high = b.high[32 * half + j] >> (2 * quarter) & 3;
  return half_at(&b.scale) * static_cast<float>(b.scales[i / 16]) *
         static_cast<float>((low | high << 4) - 32);
}
__device__ float decode(const BlockIQ4_XS& b, int i) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&b);
  const int g = i / 32, high = (bytes[2] | bytes[3] << 8) >> (2 * g) & 3;
  const int scale = (b.scales_low[g / 2] >> (4 * (g % 2)) & 15) | high << 4;
  const int code = b.codes[g * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
  return half_at(&b) * static_cast<float>(scale - 32) * iq4_value(code);
}

template <class Block, int kElems>
__global__ void __launch_bounds__(256) embed_rows(CudaEmbedArgs a, int64_t row_bytes) {
  begin_kernel();
  const int64_t t = blockIdx.y, id = a.ids[t];
  const int i = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
  if (i >= a.table.cols) return;
  float v = 0;
  if (id >= 0 && id < a.table.rows) {
    const Block* row = reinterpret_cast<const Block*>(a.table.data + id * row_bytes);
    v = decode(row[i / kElems], i % kElems);
  }
  a.y[t * a.y_stride + i] = v;
}

// The two rows, or columns, of the table around place `at` of `count`, and their weights, rounded
// as by embed_grid_scalar.cc.
struct Around {
  int at[2];
  float weight[2];
};
__device__ Around around(int at, int count, int side) {
  const float place = __fdiv_rn(__fmul_rn(static_cast<float>(at), static_cast<float>(side - 1)),
                                static_cast<float>(max(count - 1, 1)));
  const float below = floorf(place);
  const int first = min(max(static_cast<int>(below), 0), side - 1);
  const float rest = __fsub_rn(place, below);
  return {{first, min(first + 1, side - 1)}, {__fsub_rn(1, rest), rest}};
}

template <class Block, int kElems>
__global__ void __launch_bounds__(256) embed_grid(CudaEmbedGridArgs a, int64_t row_bytes) {
  begin_kernel();
  const int64_t t = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
  if (i >= a.table.cols) return;
  const auto side = static_cast<int>(a.side);
  const Around line = around(a.line[t], a.grid[1], side);
  const Around column = around(a.column[t], a.grid[0], side);
  float v = 0;
  for (int k = 0; k < 4; ++k) {
    const int64_t row = int64_t{line.at[k / 2]} * side + column.at[k % 2];
    const float weight = __fmul_rn(line.weight[k / 2], column.weight[k % 2]);
    const Block* blocks = reinterpret_cast<const Block*>(a.table.data + row * row_bytes);
    v = __fadd_rn(v, __fmul_rn(weight, decode(blocks[i / kElems], i % kElems)));
  }
  a.y[t * a.y_stride + i] = v;
}

__global__ void __launch_bounds__(256) given_rows(CudaGivenRowsArgs a) {
  begin_kernel();
  const int64_t t = blockIdx.y, i = int64_t{blockIdx.x} * 256 + threadIdx.x;
  const int64_t row = a.row ? a.row[t] : t;
  if (i >= a.width || row < 0) return;
  const float v = a.rows[row * a.row_stride + i];
  float& y = a.y[t * a.y_stride + i];
  y = a.adds ? y + v : v;
}

template <DType kType>
__global__ void __launch_bounds__(32) embed_marlin(CudaEmbedArgs a, int64_t strip_bytes) {
  begin_kernel();
  using Tile = MarlinTile<kType>;
  const int64_t t = blockIdx.y, id = a.ids[t];
  const int lane = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
  const bool live = id >= 0 && id < a.table.rows;
  const int cols = static_cast<int>(a.table.cols), row = live ? static_cast<int>(id % 16) : 0;
  const MarlinTiles<Tile> tiles(cols);
  Tile tile;
  tile.template load<true>(reinterpret_cast<const uint8_t*>(a.table.data) +
                               (live ? id / 16 : 0) * strip_bytes + tiles.offset(index),
                           tiles.spans(index), lane);
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    uint32_t w[8];
    tile.fragment(c, w);
    const int col = index * 256 + c * 32 + lane % 4 * 8;
    if (lane / 4 != row % 8 || col >= cols) continue;
    float* y = a.y + t * a.y_stride + col;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 v = __half22float2(as_half2(row < 8 ? w[2 * j] : w[2 * j + 1]));
      y[2 * j] = live ? v.x : 0;
      y[2 * j + 1] = live ? v.y : 0;
    }
  }
}

// Calls fn.template operator()<block, its elements>() for a format that `decode` knows.
template <class R, class Fn>
R for_row_type(DType dtype, R otherwise, Fn&& fn) {
  switch (dtype) {
#define KTX_EMBED(type, elems) \
  case DType::type:            \
    return fn.template operator()<Block##type, elems>()
    KTX_EMBED(F32, 1);
    KTX_EMBED(F16, 1);
    KTX_EMBED(BF16, 1);
    KTX_EMBED(Q4_0, 32);
    KTX_EMBED(Q4_1, 32);
    KTX_EMBED(Q5_0, 32);
    KTX_EMBED(Q5_1, 32);
    KTX_EMBED(Q8_0, 32);
    KTX_EMBED(Q4_K, 256);
    KTX_EMBED(Q5_K, 256);
    KTX_EMBED(Q6_K, 256);
    KTX_EMBED(IQ4_NL, 32);
    KTX_EMBED(IQ4_XS, 256);
    KTX_EMBED(MXFP4, 32);
#undef KTX_EMBED
    default:
      return otherwise;
  }
}

}  // namespace

bool cuda_embed_takes(DType dtype, Layout layout) {
  if (marlin_takes(dtype)) return layout == Layout::Marlin || layout == Layout::Rows;
  return layout == Layout::Rows &&
         (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16);
}

Status launch_embed(const CudaEmbedArgs& a, CudaStream stream) {
  const Error unknown{"no GPU embedding takes tables of " + std::string(name(a.table.dtype)) +
                      " in layout " + std::string(name(a.table.layout))};
  if (!cuda_embed_takes(a.table.dtype, a.table.layout)) return unknown;
  const auto tokens = static_cast<unsigned>(a.tokens);
  if (a.table.layout == Layout::Marlin) {
    const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.table.cols, 256)), tokens);
    return for_marlin_type<Status>(a.table.dtype, unknown, [&]<DType kType>() {
      return launch("embed", embed_marlin<kType>, grid, 32, 0, stream, a,
                    marlin_strip_bytes(a.table.dtype, a.table.cols));
    });
  }
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.table.cols, 256)), tokens);
  return for_row_type<Status>(a.table.dtype, unknown, [&]<class Block, int kElems>() {
    return launch("embed", embed_rows<Block, kElems>, grid, 256, 0, stream, a,
                  *row_bytes(a.table.dtype, a.table.cols));
  });
}

Status launch_embed_grid(const CudaEmbedGridArgs& a, CudaStream stream) {
  const Error unknown{"no GPU kernel takes a grid's table of " + std::string(name(a.table.dtype)) +
                      " in layout " + std::string(name(a.table.layout))};
  if (a.table.layout != Layout::Rows) return unknown;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.table.cols, 256)),
                  static_cast<unsigned>(a.tokens));
  return for_row_type<Status>(a.table.dtype, unknown, [&]<class Block, int kElems>() {
    return launch("embed_grid", embed_grid<Block, kElems>, grid, 256, 0, stream, a,
                  *row_bytes(a.table.dtype, a.table.cols));
  });
}

Status launch_given_rows(const CudaGivenRowsArgs& a, CudaStream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.width, 256)),
                  static_cast<unsigned>(a.tokens));
  return launch("given_rows", given_rows, grid, 256, 0, stream, a);
}

}  // namespace ktx::kernels
