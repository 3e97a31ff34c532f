// A trie of token texts, laid out in walk order: the children of a node follow it, and `end` is
// the end of its subtree, so skipping a subtree is one jump.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace ktx::text::grammar {

struct TokenTrie {
  struct Node {
    uint8_t byte = 0;
    // How many more characters the texts in this subtree have at most, if all of these
    // are plain (is_plain) and whole; else kNotPlain.
    uint8_t plain_height = 0;
    uint16_t depth : 15 = 0;     // 1: a first byte
    uint16_t all_plain : 1 = 0;  // every text of this subtree is plain from its begin
    uint32_t end = 0;            // node behind the subtree
    uint32_t first_token = 0;    // in `tokens`, up to the next node's first
  };
  std::vector<Node> nodes;  // one more at the end, for its first_token
  std::vector<int32_t> tokens;

  bool empty() const { return tokens.empty(); }
  size_t size() const { return nodes.empty() ? 0 : nodes.size() - 1; }
};

inline constexpr uint8_t kNotPlain = 255;

// Characters that stand for themselves in a JSON string, which most tokens are made of.
inline bool is_plain(uint32_t code) {
  return code >= 0x20 && code != '"' && code != '\\';
}

// How many characters a text has if all are plain; nothing for any other text, nor for
// one of kNotPlain characters, which is more than a node's height can hold.
std::optional<size_t> plain_characters(std::string_view text);

inline constexpr size_t kMaxTokenBytes = 4096;  // longer ones are left out

// Empty texts are left out: no text leads to them.
TokenTrie build_token_trie(std::vector<std::pair<std::string_view, int32_t>> texts);

}  // namespace ktx::text::grammar
