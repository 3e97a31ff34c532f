// The tokens that spell a marker, such as <tool_call>, in a vocabulary that may have it as one
// token, or in parts.
//
//   MarkerTokens tokens(tokenizer, "<think>", "<think>");
//   tokens.next(0)    <think>, or < and <thi where that is no token
//   tokens.next(4)    nk> and nk>\n, which goes on behind it
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/sampling/token_filter.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::server {

// Immutable.
class MarkerTokens {
 public:
  // `own`: the token that is the marker, where the vocabulary has it.
  MarkerTokens(const text::Tokenizer& tokenizer, std::string_view marker, std::string_view own);

  std::string_view text() const { return text_; }
  // The tokens that go on behind the first `said` bytes.
  std::span<const int32_t> next(size_t said) const { return next_[said]; }

 private:
  std::string text_;
  std::vector<std::vector<int32_t>> next_;  // by bytes said
};

// A bit for each token, and for each that does not end an answer.
std::vector<uint32_t> all_tokens(const text::Tokenizer& tokenizer);
std::vector<uint32_t> all_but_ends(const text::Tokenizer& tokenizer);
void set_token(std::vector<uint32_t>& bits, int32_t id, bool on);

bool is_blank(std::string_view text);

}  // namespace ktx::server
