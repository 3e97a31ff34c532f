// SentencePiece's unigram model (XLM-RoBERTa, T5): of all ways to write a text with tokens the one
// with the highest sum of scores (Viterbi). Characters that no token has are unknown, neighbours of
// them together.
//
//   "▁the▁cat" -> "▁the" "▁cat"
//
// White space is to be escaped, and the text normalised, before.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer/prefix_filter.h"
#include "lib/text/tokenizer/text_map.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

// Keeps a reference to the data. Immutable; safe to share between threads.
class Unigram {
 public:
  explicit Unigram(const TokenizerData& data);

  // Appends the tokens of a text. Any bytes will do. At most 2 GiB.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  const TokenizerData& data_;
  TextMap tokens_;         // those that text can become
  PrefixFilter prefixes_;  // of these
  size_t longest_ = 0;     // of them, in bytes
  float unknown_ = 0;      // the score of a character that no token has
};

}  // namespace ktx::text
