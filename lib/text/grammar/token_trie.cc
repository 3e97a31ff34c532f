#include "lib/text/grammar/token_trie.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "lib/text/utf8.h"

namespace ktx::text::grammar {

namespace {

// From the leaves up: each node's height from its children's. A node inside of a
// character is not plain; its children's characters count from where it began.
void measure_heights(TokenTrie& trie, const std::vector<bool>& boundary,
                     const std::vector<bool>& odd) {
  std::vector<uint32_t> parent(trie.size(), UINT32_MAX);
  std::vector<uint32_t> path;
  std::vector<int> height(trie.size(), 0);  // of plain characters below, kNotPlain and more: odd
  for (uint32_t n = 0; n < trie.size(); ++n) {
    path.resize(trie.nodes[n].depth - 1u);
    if (!path.empty()) parent[n] = path.back();
    path.push_back(n);
  }
  for (uint32_t n = static_cast<uint32_t>(trie.size()); n-- > 0;) {
    if (odd[n]) height[n] = kNotPlain;
    const bool plain = boundary[n] && height[n] < kNotPlain;
    trie.nodes[n].plain_height = plain ? static_cast<uint8_t>(height[n]) : kNotPlain;
    if (parent[n] == UINT32_MAX) continue;
    const int above = std::min<int>(height[n] + (boundary[n] ? 1 : 0), kNotPlain);
    height[parent[n]] = std::max(height[parent[n]], above);
  }
}

// Which nodes end a character, and which are odd: they end one that is not plain, are
// no UTF-8, or a token ends at them within a character.
void mark_characters(const TokenTrie& trie, std::vector<bool>& boundary, std::vector<bool>& odd) {
  std::string text;
  std::vector<size_t> begins;  // of the character that each byte of `text` belongs to
  for (uint32_t n = 0; n < trie.nodes.size(); ++n) {
    const size_t depth = trie.nodes[n].depth;
    text.resize(depth - 1);
    begins.resize(depth - 1);
    text += static_cast<char>(trie.nodes[n].byte);
    // The character of the byte before goes on as long as it is cut off.
    size_t begin = depth - 1;
    if (depth > 1) {
      const size_t before = begins.back();
      if (decode_utf8(std::string_view(text).substr(before, depth - 1 - before)).cut_off) {
        begin = before;
      }
    }
    begins.push_back(begin);
    const Utf8Char c = decode_utf8(std::string_view(text).substr(begin));
    const bool token_ends =
        (n + 1 < trie.nodes.size() ? trie.nodes[n + 1].first_token : trie.tokens.size()) >
        trie.nodes[n].first_token;
    boundary[n] = c.valid && begin + c.length == depth;
    odd[n] = boundary[n] ? !is_plain(c.code) : !c.cut_off || token_ends;
  }
}

// Where every text is plain, by how many are not in front of each.
void mark_plain_subtrees(TokenTrie& trie, const std::vector<bool>& plain_text) {
  std::vector<uint32_t> others(plain_text.size() + 1, 0);
  for (size_t i = 0; i < plain_text.size(); ++i) others[i + 1] = others[i] + !plain_text[i];
  for (uint32_t n = 0; n < trie.size(); ++n) {
    TokenTrie::Node& node = trie.nodes[n];
    node.all_plain = others[trie.nodes[node.end].first_token] == others[node.first_token];
  }
}

}  // namespace

std::optional<size_t> plain_characters(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) {
    const Utf8Char c = decode_utf8(text);
    if (!c.valid || !is_plain(c.code)) return std::nullopt;
    text.remove_prefix(c.length);
  }
  if (count >= kNotPlain) return std::nullopt;
  return count;
}

TokenTrie build_token_trie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  std::sort(texts.begin(), texts.end());
  TokenTrie trie;
  std::vector<uint32_t> path;  // nodes from the first byte to the last text's end
  std::string_view last;
  std::vector<bool> plain_text;
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth) {
      trie.nodes[path.back()].end = static_cast<uint32_t>(trie.nodes.size());
      path.pop_back();
    }
  };
  for (const auto& [text, token] : texts) {
    if (text.empty() || text.size() > kMaxTokenBytes) continue;
    const size_t common =
        std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first - text.begin();
    close_to(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(trie.nodes.size()));
      trie.nodes.push_back({.byte = static_cast<uint8_t>(text[i]),
                            .depth = static_cast<uint16_t>(i + 1),
                            .first_token = static_cast<uint32_t>(trie.tokens.size())});
    }
    trie.tokens.push_back(token);
    plain_text.push_back(plain_characters(text).has_value());
    last = text;
  }
  close_to(0);
  std::vector<bool> boundary(trie.nodes.size(), false), odd(trie.nodes.size(), false);
  mark_characters(trie, boundary, odd);
  trie.nodes.push_back({.first_token = static_cast<uint32_t>(trie.tokens.size())});
  measure_heights(trie, boundary, odd);
  mark_plain_subtrees(trie, plain_text);
  return trie;
}

}  // namespace ktx::text::grammar
