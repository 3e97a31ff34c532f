#include "lib/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

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
    std::vector<bool> placed(data.tokens.size());  // stand in some places alone
    for (const auto* list : {&data.single_word, &data.normalized}) {
      for (const uint32_t id : *list) placed[id] = true;
    }
    for (uint32_t id = 0; id < data.tokens.size(); ++id) {
      const TokenType type = data.types[id];
      const bool plain =
          type == TokenType::Normal || (type == TokenType::UserDefined && !placed[id]);
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
  const uint32_t right = s.symbols[left].next;
  if (right == kNone) return;
  if (const Slot* merge = find_merge(s.symbols[left].id, s.symbols[right].id)) {
    s.queue.push({merge->rank, left, 0});
  }
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
  s.symbols.clear();
  const auto add = [&](uint32_t id, size_t begin) {
    const auto count = static_cast<uint32_t>(s.symbols.size());
    s.symbols.push_back({id, static_cast<uint32_t>(begin), count - 1, count + 1});
  };
  static_assert(uint32_t{0} - 1 == kNone);
  for (size_t at = 0; at < piece.size();) {
    if (data_.byte_level) {
      add(byte_symbols_[static_cast<uint8_t>(piece[at])], at);
      ++at;
      continue;
    }
    const Utf8Char next = decode_utf8(piece.substr(at));
    const size_t size = next.valid ? next.length : 1;
    add(tokens_.find(data_.tokens, piece.substr(at, size)).value_or(kNone), at);
    at += size;
  }
  s.symbols.back().next = kNone;
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
  if (data_.byte_level && piece.size() == 1) {
    return emit(byte_symbols_[static_cast<uint8_t>(piece[0])], piece, ids);
  }
  first_symbols(piece, s);
  s.queue.begin(s.symbols.size(), data_.merges.size());
  for (uint32_t i = 0; i < s.symbols.size(); ++i) push_pair(i, s);
  while (const std::optional<MergePair> best = s.queue.pop()) {
    __builtin_prefetch(&s.symbols[s.queue.soon()]);
    // The pair may be gone: a half was merged with its other neighbour.
    const Merge& merge = data_.merges[best->rank];
    Symbol& left = s.symbols[best->left];
    if (left.next == kNone || left.id != merge.left || s.symbols[left.next].id != merge.right) {
      continue;
    }
    Symbol& right = s.symbols[left.next];
    left.id = merge.result;
    left.next = right.next;
    if (left.next != kNone) s.symbols[left.next].previous = best->left;
    // Cut out of the chain: no pair begins there any more.
    right.id = kNone;
    right.next = kNone;
    if (left.previous != kNone) push_pair(left.previous, s);
    push_pair(best->left, s);
  }
  for (uint32_t i = 0; i != kNone; i = s.symbols[i].next) {
    const Symbol& symbol = s.symbols[i];
    const size_t end = symbol.next == kNone ? piece.size() : s.symbols[symbol.next].begin;
    emit(symbol.id, piece.substr(symbol.begin, end - symbol.begin), ids);
  }
}

}  // namespace ktx::text
