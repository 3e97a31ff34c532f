#include "lib/text/tokenizer/spm.h"

#include <algorithm>
#include <cstdint>

#include "lib/text/tokenizer/byte_token.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

constexpr uint32_t kNoSymbol = UINT32_MAX;

}  // namespace

Spm::Spm(const TokenizerData& data) : data_(data), tokens_(data.tokens.size()) {
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
    }
  }
}

bool Spm::later(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

void Spm::push_pair(std::string_view text, const std::vector<Symbol>& symbols, uint32_t left,
                    std::vector<Candidate>& heap) const {
  const uint32_t right = symbols[left].next;
  if (right == kNoSymbol) return;
  const uint32_t size = symbols[left].size + symbols[right].size;
  if (size > longest_) return;
  const auto id = tokens_.find(data_.tokens, text.substr(symbols[left].begin, size));
  if (!id) return;
  heap.push_back({data_.scores[*id], left, size});
  std::push_heap(heap.begin(), heap.end(), later);
}

void Spm::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text.substr(at));
    const size_t size = next.valid ? next.length : 1;
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(size),
                       index == 0 ? kNoSymbol : index - 1, index + 1});
    at += size;
  }
  symbols.back().next = kNoSymbol;

  std::vector<Candidate> heap;
  for (uint32_t i = 0; i < symbols.size(); ++i) push_pair(text, symbols, i, heap);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    if (left.size == 0 || left.next == kNoSymbol) continue;
    Symbol& right = symbols[left.next];
    if (left.size + right.size != best.size) continue;  // a half was merged elsewhere
    left.size = best.size;
    right.size = 0;
    left.next = right.next;
    if (left.next != kNoSymbol) symbols[left.next].previous = best.left;
    if (left.previous != kNoSymbol) push_pair(text, symbols, left.previous, heap);
    push_pair(text, symbols, best.left, heap);
  }

  for (uint32_t i = 0; i != kNoSymbol; i = symbols[i].next) {
    const std::string_view piece = text.substr(symbols[i].begin, symbols[i].size);
    if (const auto id = tokens_.find(data_.tokens, piece)) {
      ids.push_back(static_cast<int32_t>(*id));
      continue;
    }
    const bool as_bytes =
        data_.byte_fallback && std::all_of(piece.begin(), piece.end(), [&](char c) {
          return byte_ids_[static_cast<uint8_t>(c)] >= 0;
        });
    if (as_bytes) {
      for (const char c : piece) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (data_.ids.unk >= 0) {
      ids.push_back(data_.ids.unk);
    }
  }
}

}  // namespace ktx::text
