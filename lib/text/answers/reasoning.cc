#include "lib/text/answers/reasoning.h"

#include <algorithm>

#include "lib/text/answers/call_formats.h"
#include "lib/text/answers/partial_match.h"

namespace ktx::text {
namespace {

constexpr std::string_view kKimiMarks[] = {"<|open|>response<|sep|>", "<|close|>response<|sep|>",
                                           kKimiK3End};

constexpr ReasoningTags kKnownTags[] = {
    {"<think>", "</think>"},                            // DeepSeek R1 and V3.1, Qwen3, GLM
    {"◁think▷", "◁/think▷"},                            // Kimi
    {"[THINK]", "[/THINK]"},                            // Magistral, Ministral
    {"<|channel>thought", "<channel|>", "<|channel>"},  // Gemma 4
    {"<seed:think>", "</seed:think>"},                  // Seed-OSS
    {"<thought>", "</thought>"},                        // EXAONE Deep
    {"<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>", kKimiMarks[0], kKimiMarks,
     kKimiMarks[1], kKimiK3Tags.section},
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
  const auto has = [&](std::string_view tag) {
    return chat_template.find(tag) != std::string_view::npos;
  };
  for (const ReasoningTags& tags : kKnownTags) {
    if (has(tags.open) || has(tags.close)) return tags;
    // A template that marks all parts puts its tags together.
    if (!tags.marks.empty() && has(tags.open_token)) return tags;
  }
  return std::nullopt;
}

bool prompt_opens_reasoning(std::string_view prompt, const ReasoningTags& tags) {
  return prompt.substr(0, end_without_space(prompt)).ends_with(tags.open);
}

// What may become the end of the reasoning.
size_t ReasoningSplitter::held_of_close(std::string_view text) const {
  return std::max(partial_match(text, tags_.close), partial_match(text, tags_.opens_answer));
}

// Shows the answer up to its first mark, or to its calls; false: neither is there, and what may
// become one is held.
bool ReasoningSplitter::drop_mark(ReasoningDelta& delta) {
  size_t first = held_.size(), bytes = 0;
  const auto look_for = [&](std::string_view mark) {
    const size_t at = std::min(held_.find(mark), held_.size() - partial_match(held_, mark));
    if (at >= first) return;
    first = at;
    bytes = held_.compare(at, mark.size(), mark) == 0 ? mark.size() : 0;
  };
  for (const std::string_view mark : tags_.marks) look_for(mark);
  if (!tags_.opens_calls.empty()) look_for(tags_.opens_calls);
  const std::string_view found = std::string_view(held_).substr(first, bytes);
  if ((bytes > 0 && found == tags_.opens_calls) || (grammar_ && first > space_at_begin(held_))) {
    state_ = State::Rest;
    return true;
  }
  delta.answer += std::string_view(held_).substr(0, first);
  held_.erase(0, first + bytes);
  return bytes > 0;
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
      std::string_view tag = tags_.close;
      if (!tags_.opens_answer.empty() && text.find(tags_.opens_answer) < text.find(tag)) {
        tag = tags_.opens_answer;
      }
      if (const size_t close = text.find(tag); close != std::string_view::npos) {
        delta.reasoning += text.substr(0, end_without_space(text.substr(0, close)));
        held_.erase(0, close + tag.size());
        state_ = State::AnswerBegins;
        return true;
      }
      const size_t partial = text.size() - held_of_close(text);
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
    case State::Answer:
      return drop_mark(delta);
    case State::Rest:
      delta.answer += held_;
      held_.clear();
      return false;
  }
  return false;
}

bool ReasoningSplitter::may_close() const {
  return state_ == State::Reasoning && held_of_close(held_) > 0;
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
  const bool token = held_.find('>') != std::string::npos;
  if (!token && (state_ == State::Start || state_ == State::Answer)) delta.answer = held_;
  if (!token && state_ == State::Reasoning && end_without_space(held_) > 0) {
    delta.reasoning = held_;
  }
  held_.clear();
  return delta;
}

}  // namespace ktx::text
