// A tile of the marlin layout in a warp's registers, and its weights as the A fragments of
// the tensor cores. A format is a plane of codes (marlin_codes.cuh) and a plane of scales
// (marlin_scales.cuh):
//
//   MarlinTile<DType::Q4_K> tile;
//   tile.load<true>(bytes, spans, lane);  // 16-byte loads, all before the first use
//   tile.fragment(c, a);                  // columns 32c .. 32c + 31: a[0..3] step 0, a[4..7] step
//   1
//
// Layout of the planes: kernels/matmul/marlin_layout.h. About 1.6 instructions a weight for
// nibbles, 2.1 with high bits; scales 0.2 to 0.7.
#pragma once

#include "kernels/cuda/marlin/marlin_codes.cuh"
#include "kernels/cuda/marlin/marlin_scales.cuh"
#include "lib/formats/layout.h"

namespace ktx::kernels {

template <class Codes, class Scales>
struct MarlinTileOf {
  static constexpr int kSpanBytes = Codes::kSpanBytes + Scales::kSpanBytes;
  static constexpr bool kWide = Scales::kWide;
  Codes codes;
  Scales scales;
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    if constexpr (kWide) spans = 4;
    codes.template load<kGlobal>(tile, spans, lane);
    scales.load(tile + Codes::kSpanBytes * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[8]) const {
    const auto rows = scales.rows(c);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      codes.pairs(c, s, q);
      rows.scale(q, a + 4 * s);
    }
  }
};

template <DType kType>
struct MarlinTile;
#define KTX_TILE(type, scales, ...) \
  template <>                       \
  struct MarlinTile<DType::type> : MarlinTileOf<__VA_ARGS__, scales> {}
KTX_TILE(Q4_0, HalfScales, NibbleCodes<8>);
KTX_TILE(Q4_1, HalfScaleOffsets, NibbleCodes<0>);
KTX_TILE(Q5_0, HalfScales, FiveBitCodes<16, false>);
KTX_TILE(Q5_1, HalfScaleOffsets, FiveBitCodes<0, false>);
KTX_TILE(Q8_0, HalfScales, ByteCodes);
KTX_TILE(Q4_K, ScaleMinHeader, NibbleCodes<0>);
KTX_TILE(Q5_K, ScaleMinHeader, FiveBitCodes<0, true>);
KTX_TILE(Q6_K, SixBitScales, SixBitCodes);
KTX_TILE(IQ4_NL, HalfScales, TableCodes<DType::IQ4_NL>);
KTX_TILE(IQ4_XS, Iq4XsScales, TableCodes<DType::IQ4_XS>);
KTX_TILE(MXFP4, ExponentScales, TableCodes<DType::MXFP4>);
#undef KTX_TILE

// Where the tiles of a strip are.
template <class Tile>
struct MarlinTiles {
  int count, last_spans;  // all but the last have 4
  __device__ explicit MarlinTiles(int cols)
      : count((cols + 255) / 256), last_spans((cols + 63) / 64 - 4 * (count - 1)) {}
  __device__ int spans(int tile) const {
    if constexpr (Tile::kWide) return 4;
    return tile + 1 == count ? last_spans : 4;
  }
  __device__ static size_t offset(int tile) {
    return static_cast<size_t>(tile) * 4 * Tile::kSpanBytes;
  }
};

}  // namespace ktx::kernels
