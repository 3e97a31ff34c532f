// Byte tokens of SPM: "<0x0A>" stands for the byte 0x0A.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ktx::text {

// Exactly "<0x", two hexadecimal digits, ">"; nothing else is a byte token.
inline std::optional<uint8_t> byte_of_token(std::string_view token) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

}  // namespace ktx::text
