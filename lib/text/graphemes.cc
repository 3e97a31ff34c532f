#include "lib/text/graphemes.h"

#include <utf8proc.h>

#include <algorithm>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

int columns_of(uint32_t code) {
  return std::clamp(utf8proc_charwidth(static_cast<utf8proc_int32_t>(code)), 0, 2);
}

bool is_regional_indicator(uint32_t code) {
  return code >= 0x1F1E6 && code <= 0x1F1FF;
}

}  // namespace

Grapheme next_grapheme(std::string_view text) {
  Utf8Char last = decode_utf8(text);
  if (!last.valid) return {last.length, 1};
  Grapheme grapheme{last.length, columns_of(last.code)};
  const bool flag = is_regional_indicator(last.code);
  utf8proc_int32_t state = 0;
  while (grapheme.length < text.size()) {
    const Utf8Char next = decode_utf8(text.substr(grapheme.length));
    if (!next.valid ||
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    grapheme.length += next.length;
    grapheme.columns = std::max(grapheme.columns, flag ? 2 : columns_of(next.code));
    last = next;
  }
  return grapheme;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    out += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    out += kReplacementChar;
    text.remove_prefix(decode_utf8(text).length);
  }
  return out;
}

}  // namespace ktx::text
