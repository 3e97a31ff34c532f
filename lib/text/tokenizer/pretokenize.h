// Splits a text into pre-tokens, within which BPE merges, e.g. by the pattern of Qwen2
//
//   "I've 12 cats\n"  ->  "I" "'ve" " " "1" "2" " cats" "\n"
//
// Steps apply in order. Each splits the pieces of the previous step further and sees nothing
// beyond the ends of its piece.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/regex.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

// What a name in tokenizer.ggml.pre stands for; see pretokenizer.def.
struct Pretokenizer {
  std::vector<SplitStep> splits;
  bool ignore_merges = false;
  bool add_bos = false;
};

// Fails for an unknown name, and says which are known.
Result<Pretokenizer> find_pretokenizer(std::string_view name);
std::vector<std::string> pretokenizer_names();

// Compiled steps. Immutable; safe to share between threads.
class Splitter {
 public:
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    bool operator==(const Piece&) const = default;
  };

  // Fails on a pattern that PCRE2 does not take.
  static Result<Splitter> create(std::span<const SplitStep> steps);

  // The pieces in order. They cover the text, but for matches that a step removes.
  // Any bytes will do: one that is no UTF-8 counts as U+FFFD. Where a pattern runs
  // out of its limits, the rest of its piece stays whole: no text is lost.
  std::vector<Piece> split(std::string_view text) const;

 private:
  struct Step {
    SplitStep rule;
    Regex regex;
  };
  std::vector<Step> steps_;
};

}  // namespace ktx::text
