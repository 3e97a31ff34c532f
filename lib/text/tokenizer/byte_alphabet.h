// The GPT-2 byte alphabet: each byte as one printable character, so that
// byte-level tokens can be kept as text. Bytes that are printable in Latin-1
// stand for themselves; the 68 others are U+0100 and up, in order:
//
//   0x20 ' ' -> U+0120 'Ġ'      0x0A '\n' -> U+010A 'Ċ'      0x41 'A' -> 'A'
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ktx::text {

// The code point for a byte, below 0x144.
uint32_t alphabet_code(uint8_t byte);
void append_in_alphabet(std::string_view bytes, std::string& out);

// The byte for a code point of the alphabet.
std::optional<uint8_t> byte_of_code(uint32_t code);
// The bytes that a token stands for; characters outside of the alphabet (tokens
// that were added by hand) are kept as they are.
void append_from_alphabet(std::string_view token, std::string& out);

}  // namespace ktx::text
