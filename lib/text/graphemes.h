// User-perceived characters: a letter with its marks, an emoji with its modifiers and joiners,
// or a flag of two letters is one unit, with its width in terminal columns.
//
//   "e\u0301"  ->  {length 3, columns 1}
//   "你"       ->  {length 3, columns 2}
//
// The boundaries are those of UAX #29 (utf8proc). Terminals differ in the columns of
// joined emoji; the ones here are those of a terminal that draws them as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ktx::text {

struct Grapheme {
  size_t length = 0;  // in bytes
  int columns = 0;    // 0 for control characters and for marks without a letter
};

// The first unit of a text that is not empty. Safe for any bytes: an invalid sequence is a
// unit of one column.
Grapheme next_grapheme(std::string_view text);

// The text with each invalid sequence replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace ktx::text
