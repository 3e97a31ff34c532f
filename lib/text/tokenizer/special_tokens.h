// Finds tokens that are matched in the text before any splitting: control tokens ("<|im_end|>")
// if the caller allows them, and user-defined tokens always.
//
//   "a<|im_end|>b"  ->  text "a", token 1181, text "b"
//
// The leftmost match wins, and the longest of those at one place. A trie: one step for each
// byte of the text and of the attempted matches. The flags of tokens (lstrip, rstrip, single_word)
// do what they do in the library tokenizers: a match of a single word that has a letter, digit,
// mark or connector beside it is text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/text/text_spans.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

class SpecialTokens {
 public:
  struct Fragment {
    std::string_view text;  // of the input; empty for a token
    int32_t id = -1;        // -1 for text
  };

  // Those that are looked for in a text as it came, or in the normalised text
  // (TokenizerData::normalized); `written` gives the form in which a token stands there.
  enum class Pass : uint8_t { Given, Normalized };
  using Written = std::function<std::string(std::string_view token)>;

  SpecialTokens() = default;
  SpecialTokens(const TokenizerData& data, Pass pass, const Written& written = {});

  bool empty() const { return nodes_.size() <= 1; }

  // Never gives empty texts. parse_special: also control and unknown tokens, but none that lies,
  // if only with a part, in what came from `outside`.
  std::vector<Fragment> partition(std::string_view text, bool parse_special,
                                  std::span<const TextSpan> outside = {}) const;

 private:
  struct Node {
    int32_t user_id = -1;     // ends here, matched always
    int32_t control_id = -1;  // ends here, matched on demand
    uint8_t flags = 0;
  };
  struct Hit {
    size_t length = 0;
    int32_t id = -1;
    uint8_t flags = 0;
  };
  void add(std::string_view text, int32_t id, bool control, uint8_t flags);
  // A control token only within the first `own` bytes.
  Hit longest(std::string_view text, size_t own) const;

  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  int32_t first_[256];                            // edges of the root; -1: none
};

}  // namespace ktx::text
