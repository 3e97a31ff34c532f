#include "lib/text/answers/reasoning.h"

#include <algorithm>

#include "lib/text/answers/partial_match.h"

namespace ktx::text {
namespace {

constexpr ReasoningTags kKnownTags[] = {
    {"<think>", "</think>"},                            // DeepSeek R1 and V3.1, Qwen3, GLM
    {"◁think▷", "◁/think▷"},                            // Kimi
    {"[THINK]", "[/THINK]"},                            // Magistral, Ministral
    {"<|channel>thought", "<channel|>", "<|channel>"},  // Gemma 4
    {"<seed:think>", "</seed:think>"},                  // Seed-OSS
    {"<thought>", "</thought>"},                        // EXAONE Deep
};

size_t space_at_begin(std::string_view text) {
  return std::min(text.find_first_not_of(kAsciiSpace), text.size());
}

// Where white space at the end of `text` begins.
size_t end_without_space(std::string_view text) {
  return text.find_last_not_of(kAsciiSpace) + 1;  // npos + 1 is 0
}

}  // namespace

std::optional<ReasoningTags> detect_reasoning(std::string_view chat_template) {
  for (const ReasoningTags& tags : kKnownTags) {
    if (chat_template.find(tags.open) != std::string_view::npos ||
        chat_template.find(tags.close) != std::string_view::npos) {
      return tags;
    }
  }
  return std::nullopt;
}

bool prompt_opens_reasoning(std::string_view prompt, const ReasoningTags& tags) {
  return prompt.substr(0, end_without_space(prompt)).ends_with(tags.open);
}

bool ReasoningSplitter::advance(ReasoningDelta& delta) {
  const std::string_view text = held_;
  switch (state_) {
    case State::Start: {
      const std::string_view word = text.substr(space_at_begin(text));
      if (word.starts_with(tags_.open)) {
        held_ = std::string(word.substr(tags_.open.size()));
        state_ = State::ReasoningBegins;
        return true;
      }
      if (tags_.open.starts_with(word)) return false;  // may become the tag
      state_ = State::Answer;
      return true;
    }
    case State::ReasoningBegins: {
      held_.erase(0, space_at_begin(text));
      if (held_.empty()) return false;
      state_ = State::Reasoning;
      return true;
    }
    case State::Reasoning: {
      const size_t close = text.find(tags_.close);
      if (close != std::string_view::npos) {
        delta.reasoning += text.substr(0, end_without_space(text.substr(0, close)));
        held_.erase(0, close + tags_.close.size());
        state_ = State::AnswerBegins;
        return true;
      }
      const size_t partial = text.size() - partial_match(text, tags_.close);
      const size_t shown = end_without_space(text.substr(0, partial));
      delta.reasoning += text.substr(0, shown);
      held_.erase(0, shown);
      return false;
    }
    case State::AnswerBegins: {
      held_.erase(0, space_at_begin(text));
      if (held_.empty()) return false;
      state_ = State::Answer;
      return true;
    }
    case State::Answer: {
      delta.answer += held_;
      held_.clear();
      return false;
    }
  }
  return false;
}

bool ReasoningSplitter::may_close() const {
  return state_ == State::Reasoning && partial_match(held_, tags_.close) > 0;
}

ReasoningDelta ReasoningSplitter::add(std::string_view text) {
  ReasoningDelta delta;
  held_ += text;
  while (advance(delta)) {
  }
  return delta;
}

ReasoningDelta ReasoningSplitter::finish() {
  ReasoningDelta delta;
  if (state_ == State::Start) delta.answer = held_;
  if (state_ == State::Reasoning && end_without_space(held_) > 0) delta.reasoning = held_;
  held_.clear();
  return delta;
}

}  // namespace ktx::text
