#include "lib/text/tokenizer/spm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <optional>

#include "lib/text/tokenizer/byte_token.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr uint32_t kNoSymbol = UINT32_MAX;
constexpr size_t kNeighbourBits = 8;  // for each token

// What is no UTF-8 is cut into bytes, which are characters of their own here.
struct Character {
  uint32_t code;
  size_t size;
};
Character first_character(std::string_view text) {
  const auto byte = static_cast<uint8_t>(text[0]);
  if (byte < 0x80) return {byte, 1};
  const Utf8Char next = decode_utf8(text);
  if (next.valid) return {next.code, next.length};
  return {0x110000u + byte, 1};
}

}  // namespace

Spm::Spm(const TokenizerData& data)
    : data_(data),
      tokens_(data.tokens.size()),
      neighbours_(std::bit_ceil(kNeighbourBits * data.tokens.size() + 64)) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  for (uint32_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = data.types[id];
    const std::string_view text = data.tokens[id];
    if (type == TokenType::Byte) {
      int32_t& slot = byte_ids_[*byte_of_token(text)];
      if (slot < 0) slot = static_cast<int32_t>(id);
    } else if ((type == TokenType::Normal || type == TokenType::UserDefined) && !text.empty()) {
      tokens_.add(data.tokens, id);
      longest_ = std::max(longest_, text.size());
      add_neighbours(text);
    }
  }
  std::vector<float> scores = data.scores;
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  rank_count_ = scores.size();
  for (const float score : data.scores) {
    const auto at = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>());
    rank_.push_back(static_cast<uint32_t>(at - scores.begin()));
  }
}

size_t Spm::neighbour_bit(uint32_t left, uint32_t right) const {
  const uint64_t pair = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
  return (pair >> 32) & (neighbours_.size() - 1);
}

void Spm::add_neighbours(std::string_view token) {
  std::optional<uint32_t> left;
  while (!token.empty()) {
    const Character next = first_character(token);
    if (left) neighbours_[neighbour_bit(*left, next.code)] = true;
    left = next.code;
    token.remove_prefix(next.size);
  }
}

void Spm::push_pair(std::string_view run, uint32_t left, Scratch& s) const {
  const Symbol& symbol = s.symbols[left];
  if (symbol.next == kNoSymbol) return;
  const uint32_t size = symbol.size + s.symbols[symbol.next].size;
  if (size > longest_) return;
  if (const auto id = tokens_.find(data_.tokens, run.substr(symbol.begin, size))) {
    s.queue.push({rank_[*id], left, size});
  }
}

void Spm::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Scratch scratch;
  scratch.symbols.reserve(256);
  std::string_view run = text.substr(0, 0);
  uint32_t left = 0;  // the last character of the run
  while (!text.empty()) {
    const Character next = first_character(text);
    if (!run.empty() && !neighbours_[neighbour_bit(left, next.code)]) {
      encode_run(run, scratch, ids);
      scratch.symbols.clear();
      run = text.substr(0, 0);
    }
    const auto index = static_cast<uint32_t>(scratch.symbols.size());
    scratch.symbols.push_back({static_cast<uint32_t>(run.size()), static_cast<uint32_t>(next.size),
                               index - 1, index + 1});
    static_assert(uint32_t{0} - 1 == kNoSymbol);
    run = {run.data(), run.size() + next.size};
    text.remove_prefix(next.size);
    left = next.code;
  }
  if (!run.empty()) encode_run(run, scratch, ids);
}

void Spm::encode_run(std::string_view run, Scratch& s, std::vector<int32_t>& ids) const {
  s.symbols.back().next = kNoSymbol;
  s.queue.begin(s.symbols.size(), rank_count_);
  for (uint32_t i = 0; i < s.symbols.size(); ++i) push_pair(run, i, s);
  while (const std::optional<MergePair> best = s.queue.pop()) {
    __builtin_prefetch(&s.symbols[s.queue.soon()]);
    Symbol& left = s.symbols[best->left];
    if (left.size == 0 || left.next == kNoSymbol) continue;
    Symbol& right = s.symbols[left.next];
    if (left.size + right.size != best->size) continue;  // a half was merged elsewhere
    left.size = best->size;
    right.size = 0;
    left.next = right.next;
    if (left.next != kNoSymbol) s.symbols[left.next].previous = best->left;
    if (left.previous != kNoSymbol) push_pair(run, left.previous, s);
    push_pair(run, best->left, s);
  }
  for (uint32_t i = 0; i != kNoSymbol; i = s.symbols[i].next) {
    emit(run.substr(s.symbols[i].begin, s.symbols[i].size), ids);
  }
}

void Spm::emit(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const auto id = tokens_.find(data_.tokens, piece)) {
    ids.push_back(static_cast<int32_t>(*id));
    return;
  }
  const bool as_bytes = data_.byte_fallback && std::all_of(piece.begin(), piece.end(), [&](char c) {
                          return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                        });
  if (as_bytes) {
    for (const char c : piece) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  } else if (data_.ids.unk >= 0) {
    ids.push_back(data_.ids.unk);
  }
}

}  // namespace ktx::text
