// Terminals of a grammar that are tokens instead of text: <[1234]>, <think>, !<[1234]> of GBNF
// (llama.cpp's grammars/README.md, "Tokens").
//
// The automaton knows bytes alone. So a terminal is four bytes: one that no text in UTF-8 has,
// then the token's number.
//
//   <[258]>      F8 00 01 02
//   !<[258]>     F8 and any number but 00 01 02
//
// A token then has two readings: its own bytes, and these four. Control tokens, which have no
// text, have the second one alone; tokens that end an answer have none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lib/text/grammar/token_trie.h"

namespace ktx::text::grammar {

inline constexpr uint8_t kTokenMark = 0xF8;
inline constexpr size_t kTokenNumberBytes = 3;
inline constexpr int32_t kMaxTokenNumber = (1 << (8 * kTokenNumberBytes)) - 1;

// Most significant byte first.
std::array<uint8_t, kTokenNumberBytes> token_number(int32_t token);
std::string token_terminal(int32_t token);

// A byte of it could be read as that of a terminal.
bool has_token_mark(std::string_view text);

// The second readings of the tokens 0 to `count` - 1; `without` are left out.
TokenTrie build_terminal_trie(size_t count, const std::function<bool(int32_t)>& without);

}  // namespace ktx::text::grammar
