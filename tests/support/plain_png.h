// A PNG of one colour and any size, in few bytes: what is large when it is decoded.
//
//   const std::string file = plain_png(8000, 0x102030);   // 8000 x 8000 pixels, 50 KB
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ktx::testing {

namespace png {

inline std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}

inline std::string chunk(std::string_view kind, std::string_view data) {
  const std::string text = std::string(kind) + std::string(data);
  uint32_t sum = 0xffffffff;
  for (const char c : text) {
    sum ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return big_endian(static_cast<uint32_t>(data.size())) + text + big_endian(~sum);
}

// So many zeros, as zlib has them: one, and copies of 258.
inline std::string zeros(uint64_t count) {
  std::string out = "\x78\x01";
  uint32_t held = 0;
  int bits = 0;
  const auto put = [&](uint32_t value, int size) {  // the lowest bit first
    held |= value << bits;
    for (bits += size; bits >= 8; bits -= 8, held >>= 8) out += static_cast<char>(held & 0xff);
  };
  put(1, 1);       // the last block
  put(1, 2);       // with the codes that are fixed
  put(0b1100, 8);  // a zero; codes begin with their highest bit
  for (--count; count >= 258; count -= 258) {
    put(0b10100011, 8);  // length 258
    put(0, 5);           // of what is one before
  }
  for (; count > 0; --count) put(0b1100, 8);
  put(0, 7);  // the end
  if (bits > 0) put(0, 8 - bits);
  return out;
}

}  // namespace png

inline std::string plain_png(uint32_t side, uint32_t color) {
  const uint64_t raw = uint64_t{side} * (1 + (side + 7) / 8);
  const uint32_t adler = static_cast<uint32_t>(raw % 65521) << 16 | 1;  // of zeros
  std::string colors = png::big_endian(color).substr(1) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" +
         png::chunk("IHDR", png::big_endian(side) + png::big_endian(side) +
                                std::string("\x01\x03\x00\x00\x00", 5)) +
         png::chunk("PLTE", colors) + png::chunk("IDAT", png::zeros(raw) + png::big_endian(adler)) +
         png::chunk("IEND", "");
}

}  // namespace ktx::testing
