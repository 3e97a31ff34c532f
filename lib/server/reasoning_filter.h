// Lets a model reason before an answer that a grammar constrains.
//
//   <think> anything but the end of the answer </think> {"name": ...}
//   ^ only where it may begin            ^ from here on the grammar decides
//
// Works if both tags are single tokens, as in the vocabularies of models trained with them. In the
// harmony form the grammar begins with the body of the first message that is no reasoning.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/runtime/sampling/token_filter.h"
#include "lib/server/reasoning_watch.h"

namespace ktx::server {

// A bit for each token that does not end an answer.
std::vector<uint32_t> all_but_ends(const text::Tokenizer& tokenizer);

struct ReasoningTokens {
  int32_t open = -1;
  int32_t close = -1;
  // Within reasoning: all but those that end an answer.
  std::vector<uint32_t> allowed;
};

class ReasoningFilter final : public runtime::TokenFilter {
 public:
  // `already_open`: the prompt ends within the reasoning. Else it may begin with the
  // first token, or not at all. `tokens` must outlive the filter.
  ReasoningFilter(const ReasoningTokens& tokens, bool already_open,
                  std::unique_ptr<runtime::TokenFilter> answer)
      : tokens_(tokens),
        state_(already_open ? State::Reasoning : State::Start),
        answer_(std::move(answer)) {}

  Result<runtime::TokenBits> allowed() override;
  Status accept(int32_t id) override;
  void prepare() override;

 private:
  enum class State { Start, Reasoning, Answer };
  const ReasoningTokens& tokens_;
  State state_;
  const std::unique_ptr<runtime::TokenFilter> answer_;
  std::vector<uint32_t> start_;  // the first tokens of an answer, and the one that opens reasoning
};

class HarmonyFilter final : public runtime::TokenFilter {
 public:
  HarmonyFilter(const text::Tokenizer& tokenizer, ReasoningWatch watch,
                std::unique_ptr<runtime::TokenFilter> answer)
      : watch_(std::move(watch)), before_(all_but_ends(tokenizer)), answer_(std::move(answer)) {}

  Result<runtime::TokenBits> allowed() override;
  Status accept(int32_t id) override;
  void prepare() override;

 private:
  ReasoningWatch watch_;
  const std::vector<uint32_t> before_;
  const std::unique_ptr<runtime::TokenFilter> answer_;
};

}  // namespace ktx::server
