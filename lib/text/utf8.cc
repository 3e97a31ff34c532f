#include "lib/text/utf8.h"

#include <cstring>

namespace ktx::text {

Utf8Char decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  // The range of the second byte keeps out overlong forms (E0, F0), surrogates
  // (ED) and code points above U+10FFFF (F4); Unicode 15, table 3-7.
  uint8_t size = 0, low = 0x80, high = 0xBF;
  uint32_t code = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
    code = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    code = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    code = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0xFFFD, 1, false, false};
  }
  for (uint8_t i = 1; i < size; ++i) {
    if (i == text.size()) return {0xFFFD, i, false, true};
    if (byte(i) < low || byte(i) > high) return {0xFFFD, i, false, false};
    code = code << 6 | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code, size, true, false};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    if (text.size() - at >= sizeof(eight)) {  // ASCII eight at a time
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const Utf8Char next = decode_utf8(text.substr(at));
    if (!next.valid) return at;
    at += next.length;
  }
  return at;
}

void append_utf8(uint32_t code, std::string& out) {
  const auto add = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

}  // namespace ktx::text
