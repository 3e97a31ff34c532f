// SentencePiece BPE: over the characters of the whole text, the adjacent pair that forms the
// token with the highest score merges first (the leftmost of equals). Symbols that are not
// tokens in the end become byte tokens.
//
//   " the cat" -> "▁the▁cat" -> "▁the" "▁cat"        "\n" -> "<0x0A>"
//
// Spaces are characters like others, so a text cannot be cut at them. It is cut between two
// characters that stand side by side in no token, since nothing merges over such a place: most
// often before a "▁". A queue (merge_queue.h) keeps what is left at n log n.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer/merge_queue.h"
#include "lib/text/tokenizer/text_map.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

// Keeps a reference to the data. Immutable; safe to share between threads.
class Spm {
 public:
  explicit Spm(const TokenizerData& data);

  // Appends the tokens of a text whose spaces are escaped already. Any bytes will
  // do. At most 2 GiB.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  struct Symbol {
    uint32_t begin = 0, size = 0;  // in the run; size 0: merged into its left
    uint32_t previous = 0, next = 0;
  };
  struct Scratch {
    std::vector<Symbol> symbols;  // of a run
    MergeQueue queue;
  };
  void add_neighbours(std::string_view token);
  size_t neighbour_bit(uint32_t left, uint32_t right) const;
  void push_pair(std::string_view run, uint32_t left, Scratch& s) const;
  void encode_run(std::string_view run, Scratch& s, std::vector<int32_t>& ids) const;
  void emit(std::string_view piece, std::vector<int32_t>& ids) const;

  const TokenizerData& data_;
  TextMap tokens_;              // those that text can become: normal and user-defined
  std::vector<uint32_t> rank_;  // by token: its place among all scores, from the highest on
  size_t rank_count_ = 0;
  size_t longest_ = 0;  // of the tokens, in bytes
  // By a hash of two characters: they may stand side by side in a token. That others have the
  // same hash only joins runs that could be apart.
  std::vector<bool> neighbours_;
  int32_t byte_ids_[256];  // -1: none
};

}  // namespace ktx::text
