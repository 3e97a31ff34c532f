// SentencePiece's own table of characters (`precompiled_charsmap` of a tokenizer.model or GGUF):
// which text becomes which before it is cut into tokens. It is NFKC with additions of its trainer:
// line breaks become spaces, control characters go.
//
//   "ｆｕｌｌ\nwidth"  ->  "full width"
//
// The table is a double-array trie (darts-clone) whose values are places in a list of texts:
//
//   u32 size of the trie in bytes    u32 units of the trie    texts, each with a 0 behind it
//
// Safe for untrusted tables: a walk ends at the first unit that is outside of the trie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx::text {

// Immutable; safe to share between threads. Empty: every text stays as it is.
class CharacterMap {
 public:
  CharacterMap() = default;
  // Keeps a view of the table, which must outlive the map. An error says what is wrong with it.
  static Result<CharacterMap> create(std::string_view table);

  bool empty() const { return units_.empty(); }
  // The longest beginnings that the table has are replaced, one after the other. What is no UTF-8
  // becomes U+FFFD, byte by byte. Linear in time.
  std::string apply(std::string_view text) const;

 private:
  struct Match {
    size_t length = 0;  // in bytes; 0: the table has no such beginning
    uint32_t value = 0;
  };
  uint32_t unit(size_t index) const;
  Match longest(std::string_view text) const;

  std::string_view units_;  // 4 bytes each, little-endian
  std::string_view texts_;
};

}  // namespace ktx::text
