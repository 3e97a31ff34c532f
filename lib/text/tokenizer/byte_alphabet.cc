#include "lib/text/tokenizer/byte_alphabet.h"

#include <array>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr uint32_t kCodes = 0x144;  // 256 + the 68 bytes that are not printable
constexpr int16_t kNoByte = -1;

struct Alphabet {
  std::array<uint16_t, 256> code{};
  std::array<int16_t, kCodes> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet table;
  for (auto& byte : table.byte) byte = kNoByte;
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const uint16_t code = printable ? static_cast<uint16_t>(byte) : next++;
    table.code[static_cast<size_t>(byte)] = code;
    table.byte[code] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

uint32_t alphabet_code(uint8_t byte) {
  return kAlphabet.code[byte];
}

void append_in_alphabet(std::string_view bytes, std::string& out) {
  for (const char c : bytes) append_utf8(alphabet_code(static_cast<uint8_t>(c)), out);
}

std::optional<uint8_t> byte_of_code(uint32_t code) {
  if (code >= kCodes || kAlphabet.byte[code] == kNoByte) return std::nullopt;
  return static_cast<uint8_t>(kAlphabet.byte[code]);
}

void append_from_alphabet(std::string_view token, std::string& out) {
  while (!token.empty()) {
    const Utf8Char next = decode_utf8(token);
    const std::optional<uint8_t> byte = next.valid ? byte_of_code(next.code) : std::nullopt;
    if (byte) {
      out.push_back(static_cast<char>(*byte));
    } else {
      out.append(token.substr(0, next.length));
    }
    token.remove_prefix(next.length);
  }
}

}  // namespace ktx::text
