// UTF-8 decoding for untrusted bytes: strict (no overlong forms, no surrogates, nothing above
// U+10FFFF). An invalid byte is a result, never an error, e.g.
//
//   decode_utf8("\xE4\xBD")  ->  {length 2, valid false, complete false}
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ktx::text {

struct Utf8Char {
  uint32_t code = 0xFFFD;
  uint8_t length = 1;  // bytes taken; of an invalid sequence its maximal valid beginning
  bool valid = false;
  bool cut_off = false;  // invalid only because the text ends here
};

// The first character of a text that is not empty.
Utf8Char decode_utf8(std::string_view text);

// The number of bytes before the first invalid one.
size_t valid_utf8_prefix(std::string_view text);

void append_utf8(uint32_t code, std::string& out);

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";     // U+2581, SPM's space

}  // namespace ktx::text
