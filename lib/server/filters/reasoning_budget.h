// A limit of the reasoning: behind so many tokens the next ones are decided, a message of the
// caller's and the end of the reasoning. Then the model answers.
//
//   <think> so many tokens at most, then: message </think> the answer
//
// Tokens of the reasoning count over the whole answer, markers do not. A character or tag that is
// begun when the budget is used up is still ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/sampling/token_filter.h"
#include "lib/server/filters/reasoning_watch.h"

namespace ktx::server {

struct ReasoningLimit {
  int64_t tokens = -1;  // -1: none; 0: the reasoning ends where it begins
  std::string message;  // said before its end
};

class ReasoningBudget final : public runtime::TokenFilter {
 public:
  // `answer`: what else decides about tokens; may be null. It receives every token.
  ReasoningBudget(const text::Tokenizer& tokenizer, ReasoningWatch watch,
                  const ReasoningLimit& limit, std::unique_ptr<runtime::TokenFilter> answer);

  Result<runtime::TokenBits> allowed() override;
  Status accept(int32_t id) override;
  void prepare() override;

  // The next token, where it is decided.
  std::optional<int32_t> decided() const;

 private:
  void check();

  ReasoningWatch watch_;
  const int64_t budget_;
  std::vector<int32_t> end_;  // the message and the end of the reasoning
  std::optional<size_t> at_;  // in end_, while it is being said
  int64_t tokens_ = 0;        // of reasoning so far
  const std::unique_ptr<runtime::TokenFilter> answer_;
  std::vector<uint32_t> all_, one_;
};

}  // namespace ktx::server
