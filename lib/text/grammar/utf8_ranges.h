// Converts code point ranges to ranges of UTF-8 bytes:
//
//   U+0080…U+0FFF  ->  C2-DF 80-BF,  E0 A0-BF 80-BF
//
// Surrogates have no UTF-8 and are left out.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ktx::text::grammar {

struct ByteRange {
  uint8_t low = 0;
  uint8_t high = 0;
};

struct ByteRangeSequence {
  std::array<ByteRange, 4> bytes;
  int length = 0;
};

void append_utf8_ranges(uint32_t first, uint32_t last, std::vector<ByteRangeSequence>& out);

}  // namespace ktx::text::grammar
