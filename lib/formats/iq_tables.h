// The grids of the IQ formats: how an index becomes the magnitudes (IQ1: values)
// of 8 or 4 neighbouring weights, first weight in the lowest byte.
//
//   kIq2XsGrid[1] == 0x080808080808082b: 43, then seven times 8
//
// The numbers are part of ggml's format definition (ggml-common.h) and can only be
// copied; they were chosen there by clustering. Read-only data, free to share.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ktx {

template <size_t kEntries>
using Grid8 = std::array<uint64_t, kEntries>;
template <size_t kEntries>
using Grid4 = std::array<uint32_t, kEntries>;

extern const Grid8<256> kIq2XxsGrid;  // magnitudes of 8, 25, 43
extern const Grid8<512> kIq2XsGrid;   // likewise
extern const Grid8<1024> kIq2SGrid;   // likewise
extern const Grid4<256> kIq3XxsGrid;  // magnitudes of 4, 12, 20, 28, 36, 44, 52, 62
extern const Grid4<512> kIq3SGrid;    // magnitudes of 1, 3, 5 ... 15
extern const Grid8<2048> kIq1Grid;    // int8 of -1, 0, 1; for IQ1_S and IQ1_M

// Seven stored sign bits and the eighth that makes the number of set bits even.
constexpr uint32_t even_signs(uint32_t seven_bits) {
  return seven_bits | (static_cast<uint32_t>(std::popcount(seven_bits)) & 1) << 7;
}

}  // namespace ktx
