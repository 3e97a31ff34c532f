// WordPiece (BERT): words are cut by white space and punctuation, and each is taken apart by the
// longest token that fits, from the left; a word that does not come out even is unknown.
//
//   "Unaffable!"  ->  "▁una" "ffa" "ble" "▁!"       (in files: una, ##ffa, ##ble, !)
//
// As transformers' BertTokenizer: control characters go, Chinese characters are words of their own,
// and where the vocabulary has no capitals, letters are made small and lose their accents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer/prefix_filter.h"
#include "lib/text/tokenizer/text_map.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

// Keeps a reference to the data. Immutable; safe to share between threads.
class WordPiece {
 public:
  explicit WordPiece(const TokenizerData& data);

  // Appends the tokens of a text. Any bytes will do; wrong UTF-8 is left out.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  void add_character(int32_t c, std::string& word, std::vector<int32_t>& ids) const;
  void end_word(std::string& word, std::vector<int32_t>& ids) const;

  const TokenizerData& data_;
  TextMap tokens_;         // those that text can become
  PrefixFilter prefixes_;  // of these
  size_t longest_ = 0;     // of them, in bytes
};

}  // namespace ktx::text
