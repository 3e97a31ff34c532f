// Turns tokens into text that is valid UTF-8 at every moment: a character whose bytes are
// spread over several tokens appears with the last of them.
//
//   "ä" = tokens C3, A4:    add(C3) -> ""    add(A4) -> "ä"
//
// Bytes that can never become a character are replaced by U+FFFD, one per maximal invalid
// prefix (as in browsers and Hugging Face); at the end, so are held-back bytes.
#pragma once

#include <cstdint>
#include <string>

#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::text {

struct DetokenizeOptions {
  bool special = false;  // show control tokens as they are written
  // The tokens begin a text, so SPM's space in front of it is dropped. False where
  // they continue one.
  bool at_start = true;
};

// One stream; not thread-safe. Keeps a reference to the tokenizer.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizeOptions options = {})
      : tokenizer_(tokenizer), options_(options), at_start_(options.at_start) {}

  // The text that this token completes; valid UTF-8, maybe empty.
  std::string add(int32_t id);
  // What is held back, as U+FFFD; afterwards a new text may begin.
  std::string finish();
  // Nothing is held back.
  bool at_character() const { return held_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  DetokenizeOptions options_;
  bool at_start_;
  std::string held_;  // the beginning of a character, at most 3 bytes between calls
};

}  // namespace ktx::text
