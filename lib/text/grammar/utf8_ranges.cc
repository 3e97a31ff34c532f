#include "lib/text/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

struct Span {
  uint32_t first, last;
};
// Within each, all characters have the same number of bytes.
constexpr Span kLengths[] = {
    {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};

// A range is one sequence when each byte but the first that differs runs over all of
// 80-BF: cut at the multiples of 64, 64², 64³ that lie inside.
void append_same_length(uint32_t first, uint32_t last, std::vector<ByteRangeSequence>& out) {
  for (int shift = 6; shift <= 18; shift += 6) {
    const uint32_t low_bits = (1u << shift) - 1;
    if ((first | low_bits) >= last && (first & ~low_bits) == (last & ~low_bits)) break;
    if ((first & low_bits) != 0) {
      append_same_length(first, first | low_bits, out);
      append_same_length((first | low_bits) + 1, last, out);
      return;
    }
    if ((last & low_bits) != low_bits) {
      append_same_length(first, (last & ~low_bits) - 1, out);
      append_same_length(last & ~low_bits, last, out);
      return;
    }
  }
  std::string low, high;
  append_utf8(first, low);
  append_utf8(last, high);
  ByteRangeSequence sequence;
  sequence.length = static_cast<int>(low.size());
  for (size_t i = 0; i < low.size(); ++i) {
    sequence.bytes[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  }
  out.push_back(sequence);
}

}  // namespace

void append_utf8_ranges(uint32_t first, uint32_t last, std::vector<ByteRangeSequence>& out) {
  for (const Span& span : kLengths) {
    const uint32_t from = std::max(first, span.first);
    const uint32_t to = std::min(last, span.last);
    if (from <= to && span.last > 0x7F) append_same_length(from, to, out);
    if (from <= to && span.last == 0x7F) {
      out.push_back({{{{static_cast<uint8_t>(from), static_cast<uint8_t>(to)}}}, 1});
    }
  }
}

}  // namespace ktx::text::grammar
