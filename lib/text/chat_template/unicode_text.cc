#include "lib/text/chat_template/unicode_text.h"

#include <string.h>  // memmem
#include <utf8proc.h>

#include <algorithm>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr char32_t kBrokenByte = 0xDC80 - 0x80;  // + the byte

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) ||
         utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LT;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Simple case mappings, and the one full mapping that German needs.
void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "SS";
  } else {
    append_code_point(out,
                      static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "Ss";
  } else {
    append_code_point(out,
                      static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_lower(std::string& out, char32_t c) {
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

// Calls f(code point, its bytes) for each; bytes of broken UTF-8 come one by one.
template <class F>
void for_each(std::string_view text, F f) {
  while (!text.empty()) {
    size_t bytes = 0;
    const char32_t c = decode_code_point(text, &bytes);
    f(c, text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

template <class F>
std::string_view strip_if(std::string_view text, Side side, F strips) {
  size_t bytes = 0;
  while (side != Side::Right && !text.empty() && strips(decode_code_point(text, &bytes))) {
    text.remove_prefix(bytes);
  }
  while (side != Side::Left && !text.empty()) {
    const size_t last = last_code_point_bytes(text);
    if (!strips(decode_code_point(text.substr(text.size() - last), &bytes))) break;
    text.remove_suffix(last);
  }
  return text;
}

}  // namespace

char32_t decode_code_point(std::string_view text, size_t* bytes) {
  const Utf8Char c = decode_utf8(text);
  *bytes = c.valid ? c.length : 1;
  return c.valid ? c.code : kBrokenByte + static_cast<unsigned char>(text[0]);
}

size_t code_point_bytes(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x80) return 1;
  size_t bytes = 0;
  decode_code_point(text, &bytes);
  return bytes;
}

void append_code_point(std::string& out, char32_t c) {
  if (c >= kBrokenByte + 0x80 && c <= kBrokenByte + 0xFF) {
    out += static_cast<char>(c - kBrokenByte);
  } else {
    append_utf8(c, out);
  }
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  while (!text.empty()) {
    text.remove_prefix(code_point_bytes(text));
    ++count;
  }
  return count;
}

size_t code_point_offset(std::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) {
    offset += code_point_bytes(text.substr(offset));
  }
  return offset;
}

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> out;
  for_each(text, [&](char32_t, std::string_view bytes) { out.push_back(bytes); });
  return out;
}

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_space_text(std::string_view text) {
  return !text.empty() && strip_space(text, Side::Left).empty();
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const auto cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  // Beyond the decimals: superscripts, subscripts and circled digits.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}

bool is_numeric(char32_t c) {
  const auto cat = category(c);
  return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}
bool is_word(char32_t c) {
  return is_alpha(c) || is_numeric(c) || c == '_';
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t c, std::string_view) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t c, std::string_view) { append_lower(out, c); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each(text, [&](char32_t c, std::string_view) {
    in_word ? append_lower(out, c) : append_title(out, c);
    in_word = is_cased(c);
  });
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  bool first = true;
  for_each(text, [&](char32_t c, std::string_view) {
    first ? append_title(out, c) : append_lower(out, c);
    first = false;
  });
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, std::string_view) {
    is_upper(c) ? append_lower(out, c) : append_upper(out, c);
  });
  return out;
}

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  // A sorted set: `characters` may be as long as the text.
  std::vector<char32_t> set;
  for_each(characters, [&](char32_t c, std::string_view) { set.push_back(c); });
  std::sort(set.begin(), set.end());
  return strip_if(text, side,
                  [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::string_view strip_space(std::string_view text, Side side) {
  return strip_if(text, side, is_python_space);
}

size_t last_code_point_bytes(std::string_view text) {
  for (size_t back = std::min<size_t>(4, text.size()); back > 1; --back) {
    if (code_point_bytes(text.substr(text.size() - back)) == back) return back;
  }
  return 1;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    size_t bytes = 0;
    const char32_t c = decode_code_point(text.substr(at), &bytes);
    const bool ends =
        (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    const size_t end = at;
    at += bytes;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // glibc's memmem is linear; std::string_view::find is not.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  if (needle.size() <= 16) return text.rfind(needle);  // at most 16 times the length
  if (needle.size() > text.size()) return std::string_view::npos;
  // Forward search in the reversed strings.
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t found = find_text(reversed_text, reversed_needle);
  if (found == std::string_view::npos) return found;
  return text.size() - found - needle.size();
}

}  // namespace ktx::text
