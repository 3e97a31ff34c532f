#include "lib/server/http/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace ktx::server {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> kDigitValues = [] {
  std::array<int8_t, 256> values = {};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  // The alphabet of addresses.
  values[static_cast<uint8_t>('-')] = 62;
  values[static_cast<uint8_t>('_')] = 63;
  return values;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t three = 0;
    for (size_t b = 0; b < 3; ++b) {
      three = three << 8 | (b < left ? static_cast<uint8_t>(bytes[i + b]) : 0u);
    }
    for (size_t digit = 0; digit < 4; ++digit) {
      out += digit <= left ? kDigits[three >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int held = 0;
  bool padded = false;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    if (c == '=') {
      padded = true;
      continue;
    }
    const int8_t value = kDigitValues[static_cast<uint8_t>(c)];
    if (value < 0 || padded) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xFF);
  }
  if (held == 6) return std::nullopt;  // one digit is no byte
  return out;
}

}  // namespace ktx::server
