// Length of the longest suffix of a text that may be the beginning of a marker. Streams hold it
// back, so that they never show half a marker.
//
//   partial_match("see <thi", "<think>")  ->  4      ("<thi" is held back)
//   partial_match("see <x",   "<think>")  ->  0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace ktx::text {

// The length of the longest end of `text` that begins `marker` and is not all of it.
inline size_t partial_match(std::string_view text, std::string_view marker) {
  if (marker.empty()) return 0;
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == marker.substr(0, n)) return n;
  }
  return 0;
}

inline constexpr std::string_view kAsciiSpace = " \t\r\n";

}  // namespace ktx::text
