// Byte-level BPE: within a pre-token, the adjacent pair with the lowest rank merges first (the
// leftmost of equals), until no pair has a rank.
//
//   "hello" = h e l l o   merges: 0 "h e", 1 "l l", 2 "he ll"   ->   "hell" "o"
//
// Some vocabularies use characters instead of bytes ("▁hello", with byte tokens for characters
// that they lack); then the initial symbols are characters.
//
// The pairs are in a queue by rank (merge_queue.h), so n bytes take n log n steps, however long the
// pre-token is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer/merge_queue.h"
#include "lib/text/tokenizer/text_map.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

// Keeps a reference to the data. Immutable; safe to share between threads, each with
// its own Scratch.
class Bpe {
 public:
  struct Symbol {
    uint32_t id;              // of a token, or one that only merges know
    uint32_t begin;           // in the piece
    uint32_t previous, next;  // that are left
  };
  // Buffers that calls reuse.
  struct Scratch {
    std::vector<Symbol> symbols;
    MergeQueue queue;
    std::string alphabet;
  };

  explicit Bpe(const TokenizerData& data);

  // Appends the tokens of one piece. Bytes that no token stands for become the
  // unknown token, or nothing where there is none.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;  // left symbol << 32 | right symbol
    uint32_t rank = 0;
    uint32_t result = 0;
  };
  void adopt_alphabet();
  const Slot* find_merge(uint32_t left, uint32_t right) const;
  void push_pair(uint32_t left, Scratch& scratch) const;
  void first_symbols(std::string_view piece, Scratch& scratch) const;
  void emit(uint32_t symbol, std::string_view bytes, std::vector<int32_t>& ids) const;

  const TokenizerData& data_;
  std::vector<Slot> slots_;  // open addressing; a power of two
  // For a byte: the symbol it begins as; over characters: the token of last resort.
  uint32_t byte_symbols_[256];
  TextMap tokens_;  // for ignore_merges and for characters; else empty
};

}  // namespace ktx::text
