// SentencePiece BPE: over the characters of the whole text, the adjacent pair that forms the
// token with the highest score merges first (the leftmost of equals). Symbols that are not
// tokens in the end become byte tokens.
//
//   " the cat" -> "▁the▁cat" -> "▁the" "▁cat"        "\n" -> "<0x0A>"
//
// Spaces are characters like others, so a text cannot be cut into pieces first; a
// heap keeps it at n log n.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

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
    uint32_t begin = 0, size = 0;  // in the text; size 0: merged into its left
    uint32_t previous = 0, next = 0;
  };
  struct Candidate {
    float score;
    uint32_t left, size;
  };
  static bool later(const Candidate& a, const Candidate& b);
  void push_pair(std::string_view text, const std::vector<Symbol>& symbols, uint32_t left,
                 std::vector<Candidate>& heap) const;

  const TokenizerData& data_;
  TextMap tokens_;         // those that text can become: normal and user-defined
  size_t longest_ = 0;     // of them, in bytes
  int32_t byte_ids_[256];  // -1: none
};

}  // namespace ktx::text
