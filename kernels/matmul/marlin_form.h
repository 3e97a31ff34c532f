// Sizes and planes of the layout `marlin` (marlin_layout.h), shared by its packers.
//
//   for_each_tile<BlockQ6_K>(cols, [&](int64_t offset, int64_t begin, const auto& planes) {
//     std::byte* highs = strip + offset + planes.high;  // of columns begin, begin + 1, ...
//   });
#pragma once

#include <cstdint>

#include "kernels/cpu_and_gpu.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/blocks.h"

namespace ktx::kernels {

// What a block of a format is cut into: kLow bits of each code, kHigh bits above them,
// and the rest as kHeader (+ kTail) bytes. Formats without one are not packed.
template <class Block>
struct MarlinForm;

template <int elems, int low, int high, int header, int tail = 0>
struct MarlinFormOf {
  static constexpr int kElems = elems, kLow = low, kHigh = high;
  static constexpr int kHeader = header, kTail = tail;
  static constexpr bool kWide = elems == 256;  // blocks as wide as a tile
};
template <>
struct MarlinForm<BlockQ4_0> : MarlinFormOf<32, 4, 0, 2> {};
template <>
struct MarlinForm<BlockQ4_1> : MarlinFormOf<32, 4, 0, 4> {};
template <>
struct MarlinForm<BlockIQ4_NL> : MarlinFormOf<32, 4, 0, 2> {};
template <>
struct MarlinForm<BlockMXFP4> : MarlinFormOf<32, 4, 0, 1> {};
template <>
struct MarlinForm<BlockQ5_0> : MarlinFormOf<32, 4, 1, 2> {};
template <>
struct MarlinForm<BlockQ5_1> : MarlinFormOf<32, 4, 1, 4> {};
template <>
struct MarlinForm<BlockQ8_0> : MarlinFormOf<32, 8, 0, 2> {};
template <>
struct MarlinForm<BlockQ4_K> : MarlinFormOf<256, 4, 0, 16> {};
template <>
struct MarlinForm<BlockQ5_K> : MarlinFormOf<256, 4, 1, 16> {};
template <>
struct MarlinForm<BlockQ6_K> : MarlinFormOf<256, 4, 2, 16, 2> {};
template <>
struct MarlinForm<BlockIQ4_XS> : MarlinFormOf<256, 4, 0, 8> {};

template <class Block>
concept InMarlin = requires {
  MarlinForm<Block>::kElems;
};

// The planes of a tile of `cols` columns (padded: 64 to 256), low codes first.
template <class Block>
struct TilePlanes {
  using Form = MarlinForm<Block>;
  int cols, blocks;
  int64_t high, header, tail, bytes;
  KTX_CPU_AND_GPU explicit constexpr TilePlanes(int cols)
      : cols(cols), blocks(cols / Form::kElems) {
    high = int64_t{kMarlinRows} * cols * Form::kLow / 8;
    header = high + int64_t{kMarlinRows} * cols * Form::kHigh / 8;
    tail = header + kMarlinRows * blocks * Form::kHeader;
    bytes = tail + kMarlinRows * blocks * Form::kTail;
  }
  KTX_CPU_AND_GPU int64_t header_of(int row, int block) const {
    return header + (row * blocks + block) * Form::kHeader;
  }
  KTX_CPU_AND_GPU int64_t tail_of(int row, int block) const {
    return tail + (row * blocks + block) * Form::kTail;
  }
};

template <class Block>
KTX_CPU_AND_GPU int64_t padded_cols(int64_t cols) {
  constexpr int64_t kUnit = MarlinForm<Block>::kWide ? kMarlinCols : kMarlinSpan;
  return (cols + kUnit - 1) / kUnit * kUnit;
}

template <class Block>
KTX_CPU_AND_GPU int64_t strip_bytes(int64_t cols) {
  return kMarlinRows * (padded_cols<Block>(cols) / MarlinForm<Block>::kElems) *
         static_cast<int64_t>(sizeof(Block));
}

// Calls visit(tile bytes offset, first column, planes) for each tile of a strip.
template <class Block, class Visit>
void for_each_tile(int64_t cols, Visit&& visit) {
  int64_t offset = 0;
  const int64_t padded = padded_cols<Block>(cols);
  for (int64_t begin = 0; begin < padded; begin += kMarlinCols) {
    const int64_t width = padded - begin < kMarlinCols ? padded - begin : kMarlinCols;
    const TilePlanes<Block> planes(static_cast<int>(width));
    visit(offset, begin, planes);
    offset += planes.bytes;
  }
}

}  // namespace ktx::kernels
