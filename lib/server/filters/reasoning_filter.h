// Lets a model reason before an answer that a grammar constrains.
//
//   <think> anything but the end of the answer </think> {"name": ...}
//   ^ only where it may begin            ^ from here on the grammar decides
//
// Tags are found in the text, so they may be single tokens, as in the vocabularies of models that
// were trained with them, or several. In the harmony form the grammar begins with the body of the
// first message that is no reasoning, and none holds for that of a call. Where a tag opens the
// answer (Kimi-K3), it comes behind the reasoning.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/server/filters/marker_tokens.h"
#include "lib/server/filters/reasoning_watch.h"

namespace ktx::server {

// What the tags of a model's reasoning mean for its tokens. Immutable.
class ReasoningTokens {
 public:
  ReasoningTokens(const text::Tokenizer& tokenizer, const text::ReasoningTags& tags);

  const MarkerTokens& open() const { return open_; }
  // The tokens that go on with the tag that opens an answer, and say no more than it.
  std::span<const int32_t> answer_opens(size_t said) const { return answer_opens_[said]; }
  // A tag that ends reasoning, and by bytes of it that are said the tokens that end it and say more
  // than white space behind it: the grammar would miss the begin of the answer.
  struct EndTag {
    std::string_view tag;
    std::vector<std::vector<int32_t>> overruns;
  };
  std::span<const EndTag> ends() const { return ends_; }
  // Within reasoning: all but those that end an answer, and overruns of tags that have not begun.
  std::span<const uint32_t> allowed() const { return allowed_; }
  const text::ReasoningTags& tags() const { return tags_; }
  std::string_view piece(int32_t id) const { return tokenizer_.piece(id); }

 private:
  const text::Tokenizer& tokenizer_;
  const text::ReasoningTags tags_;
  const MarkerTokens open_;
  std::vector<std::vector<int32_t>> answer_opens_;  // by bytes said
  std::vector<EndTag> ends_;
  std::vector<uint32_t> allowed_;
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
  enum class State { Start, Opening, Reasoning, AnswerOpens, Answer };
  Result<bool> opens(int32_t id);
  void reason(std::string_view text);

  const ReasoningTokens& tokens_;
  State state_;
  const std::unique_ptr<runtime::TokenFilter> answer_;
  std::string said_;            // of an opening tag; then what may be the begin of the closing one
  std::vector<uint32_t> mask_;  // of the next token, where it is neither the answer's nor any
};

class HarmonyFilter final : public runtime::TokenFilter {
 public:
  HarmonyFilter(const text::Tokenizer& tokenizer, ReasoningWatch watch,
                std::unique_ptr<runtime::TokenFilter> answer)
      : watch_(std::move(watch)),
        before_(all_but_ends(tokenizer)),
        call_(all_tokens(tokenizer)),
        answer_(std::move(answer)) {}

  Result<runtime::TokenBits> allowed() override;
  Status accept(int32_t id) override;
  void prepare() override;

 private:
  bool answers() const { return watch_.answers() && !watch_.calls(); }

  ReasoningWatch watch_;
  const std::vector<uint32_t> before_, call_;
  const std::unique_ptr<runtime::TokenFilter> answer_;
};

}  // namespace ktx::server
