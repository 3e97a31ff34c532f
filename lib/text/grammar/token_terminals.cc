#include "lib/text/grammar/token_terminals.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ktx::text::grammar {

std::array<uint8_t, kTokenNumberBytes> token_number(int32_t token) {
  return {static_cast<uint8_t>(token >> 16), static_cast<uint8_t>(token >> 8),
          static_cast<uint8_t>(token)};
}

std::string token_terminal(int32_t token) {
  std::string bytes(1, static_cast<char>(kTokenMark));
  for (const uint8_t byte : token_number(token)) bytes += static_cast<char>(byte);
  return bytes;
}

bool has_token_mark(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<uint8_t>(byte) >= kTokenMark; });
}

TokenTrie build_terminal_trie(size_t count, const std::function<bool(int32_t)>& without) {
  std::vector<std::string> terminals;
  std::vector<std::pair<std::string_view, int32_t>> texts;
  terminals.reserve(count);
  for (size_t i = 0; i < count && i <= size_t{kMaxTokenNumber}; ++i) {
    const auto token = static_cast<int32_t>(i);
    if (without(token)) continue;
    terminals.push_back(token_terminal(token));
    texts.push_back({terminals.back(), token});
  }
  return build_token_trie(std::move(texts));
}

}  // namespace ktx::text::grammar
