#include "lib/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "lib/text/tokenizer/byte_alphabet.h"
#include "lib/text/tokenizer/byte_token.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

size_t hash_pair(uint64_t pair) {  // the finalizer of splitmix64
  pair = (pair ^ pair >> 30) * 0xBF58476D1CE4E5B9u;
  pair = (pair ^ pair >> 27) * 0x94D049BB133111EBu;
  return pair ^ pair >> 31;
}

bool later(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

Bpe::Bpe(const TokenizerData& data)
    : data_(data),
      slots_(std::bit_ceil(data.merges.size() * 2 + 2)),
      tokens_(data.ignore_merges || !data.byte_level ? data.tokens.size() : 0) {
  const size_t mask = slots_.size() - 1;
  for (uint32_t rank = 0; rank < data.merges.size(); ++rank) {
    const Merge& merge = data.merges[rank];
    const uint64_t pair = uint64_t{merge.left} << 32 | merge.right;
    size_t at = hash_pair(pair) & mask;
    while (slots_[at].pair != UINT64_MAX && slots_[at].pair != pair) at = (at + 1) & mask;
    if (slots_[at].pair == UINT64_MAX) slots_[at] = {pair, rank, merge.result};  // the first counts
  }

  std::fill(std::begin(byte_symbols_), std::end(byte_symbols_), kNone);
  if (data.byte_level) {
    adopt_alphabet();
  } else {
    for (uint32_t id = 0; id < data.tokens.size(); ++id) {
      if (data.types[id] != TokenType::Byte || !data.byte_fallback) continue;
      uint32_t& symbol = byte_symbols_[*byte_of_token(data.tokens[id])];
      if (symbol == kNone) symbol = id;
    }
  }
  if (data.ignore_merges || !data.byte_level) {
    for (uint32_t id = 0; id < data.tokens.size(); ++id) {
      const TokenType type = data.types[id];
      const bool plain = type == TokenType::Normal || type == TokenType::UserDefined;
      if (plain && !data.tokens[id].empty()) tokens_.add(data.tokens, id);
    }
  }
}

// A token of one character of the alphabet stands for a byte; a normal one before
// others of the same text, and before a symbol that only merges know.
void Bpe::adopt_alphabet() {
  const auto adopt = [&](std::string_view text, uint32_t symbol) {
    if (text.empty() || text.size() > 2) return;
    const Utf8Char first = decode_utf8(text);
    if (!first.valid || first.length != text.size()) return;
    const std::optional<uint8_t> byte = byte_of_code(first.code);
    if (byte && byte_symbols_[*byte] == kNone) byte_symbols_[*byte] = symbol;
  };
  for (const bool normal : {true, false}) {
    for (uint32_t id = 0; id < data_.tokens.size(); ++id) {
      if ((data_.types[id] == TokenType::Normal) == normal) adopt(data_.tokens[id], id);
    }
  }
  for (uint32_t i = 0; i < data_.extra_symbols.size(); ++i) {
    adopt(data_.extra_symbols[i], static_cast<uint32_t>(data_.tokens.size() + i));
  }
}

const Bpe::Slot* Bpe::find_merge(uint32_t left, uint32_t right) const {
  if (left == kNone || right == kNone) return nullptr;
  const uint64_t pair = uint64_t{left} << 32 | right;
  const size_t mask = slots_.size() - 1;
  size_t at = hash_pair(pair) & mask;
  while (slots_[at].pair != pair) {
    if (slots_[at].pair == UINT64_MAX) return nullptr;
    at = (at + 1) & mask;
  }
  return &slots_[at];
}

void Bpe::push_pair(uint32_t left, Scratch& s) const {
  const uint32_t right = s.next[left];
  if (right == kNone) return;
  const Slot* merge = find_merge(s.symbol[left], s.symbol[right]);
  if (!merge) return;
  s.heap.push_back({merge->rank, left, s.symbol[left], s.symbol[right]});
  std::push_heap(s.heap.begin(), s.heap.end(), later);
}

// `bytes`: what the symbol covers, for one that is no token.
void Bpe::emit(uint32_t symbol, std::string_view bytes, std::vector<int32_t>& ids) const {
  const size_t tokens = data_.tokens.size();
  if (symbol < tokens) {
    ids.push_back(static_cast<int32_t>(symbol));
    return;
  }
  const size_t before = ids.size();
  for (const char c : bytes) {
    const uint32_t id = byte_symbols_[static_cast<uint8_t>(c)];
    if (id < tokens) ids.push_back(static_cast<int32_t>(id));
  }
  if (ids.size() == before && data_.ids.unk >= 0) ids.push_back(data_.ids.unk);
}

void Bpe::first_symbols(std::string_view piece, Scratch& s) const {
  s.symbol.clear();
  s.begin.clear();
  for (size_t at = 0; at < piece.size();) {
    s.begin.push_back(static_cast<uint32_t>(at));
    if (data_.byte_level) {
      s.symbol.push_back(byte_symbols_[static_cast<uint8_t>(piece[at])]);
      ++at;
      continue;
    }
    const Utf8Char next = decode_utf8(piece.substr(at));
    const size_t size = next.valid ? next.length : 1;
    s.symbol.push_back(tokens_.find(data_.tokens, piece.substr(at, size)).value_or(kNone));
    at += size;
  }
}

void Bpe::encode(std::string_view piece, Scratch& s, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (data_.ignore_merges) {
    std::string_view whole = piece;
    if (data_.byte_level) {
      s.alphabet.clear();
      append_in_alphabet(piece, s.alphabet);
      whole = s.alphabet;
    }
    if (const auto id = tokens_.find(data_.tokens, whole)) {
      ids.push_back(static_cast<int32_t>(*id));
      return;
    }
  }
  first_symbols(piece, s);
  const auto count = static_cast<uint32_t>(s.symbol.size());
  s.next.resize(count);
  s.previous.resize(count);
  s.heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    s.next[i] = i + 1 == count ? kNone : i + 1;
    s.previous[i] = i == 0 ? kNone : i - 1;
  }
  for (uint32_t i = 0; i < count; ++i) push_pair(i, s);

  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), later);
    const Candidate best = s.heap.back();
    s.heap.pop_back();
    // The pair may be gone: a half was merged with its other neighbour. (A half that
    // was merged into its left is cut out of the chain and marked.)
    const uint32_t left = best.left, right = s.next[left];
    if (right == kNone || s.symbol[left] != best.left_symbol ||
        s.symbol[right] != best.right_symbol || s.previous[right] != left) {
      continue;
    }
    s.symbol[left] = find_merge(best.left_symbol, best.right_symbol)->result;
    s.next[left] = s.next[right];
    if (s.next[left] != kNone) s.previous[s.next[left]] = left;
    s.symbol[right] = kNone;
    s.next[right] = kNone;
    if (s.previous[left] != kNone) push_pair(s.previous[left], s);
    push_pair(left, s);
  }
  for (uint32_t i = 0; i != kNone; i = s.next[i]) {
    const size_t end = s.next[i] == kNone ? piece.size() : s.begin[s.next[i]];
    emit(s.symbol[i], piece.substr(s.begin[i], end - s.begin[i]), ids);
  }
}

}  // namespace ktx::text
