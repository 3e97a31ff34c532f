// Splits a streamed answer into reasoning and content.
//
//   "<think>\nThe user greets.\n</think>\n\nHello!"
//     -> reasoning "The user greets.", answer "Hello!"
//
// The opening tag counts only where the answer begins; a template that ends the
// prompt with it has opened it already (prompt_opens_reasoning). White space around
// the reasoning and in front of the answer behind it is dropped; a text without
// reasoning passes unchanged. Half a tag is never shown: what may become one is
// held back. The outcome does not depend on how the text is cut into pieces.
//
// Kimi-K3 marks the parts of its answer, too; these marks are dropped:
//
//   "…<|close|>think<|sep|><|open|>response<|sep|>Hello!<|close|>response<|sep|>"
//
// Calls behind them pass unchanged, since a mark in an argument is a part of it; so does an answer
// that follows a grammar, behind the marks that it begins with.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ktx::text {

struct ReasoningTags {
  std::string_view open = "<think>";
  std::string_view close = "</think>";
  // The control token that `open` begins with, where it is more than one token.
  std::string_view open_token = open;
  // Opens the answer behind the reasoning, and ends that where `close` is missing; "": nothing.
  std::string_view opens_answer = {};
  std::span<const std::string_view> marks = {};  // of an answer, that one among them
  std::string_view closes_answer = {};           // the one in front of calls
  std::string_view opens_calls = {};
};

// The tags that a chat template speaks of; nothing when its model does not reason.
std::optional<ReasoningTags> detect_reasoning(std::string_view chat_template);

// Does the rendered prompt end inside the reasoning ("…<think>\n")?
bool prompt_opens_reasoning(std::string_view prompt, const ReasoningTags& tags);

struct ReasoningDelta {
  std::string reasoning;
  std::string answer;
};

// One stream; not thread-safe, copyable. Safe for any bytes.
class ReasoningSplitter {
 public:
  // `grammar`: the answer follows one.
  ReasoningSplitter(const ReasoningTags& tags, bool already_open, bool grammar = false)
      : tags_(tags),
        state_(already_open ? State::ReasoningBegins : State::Start),
        grammar_(grammar) {}

  ReasoningDelta add(std::string_view text);
  // What is held back, when no more text comes. A tag that its first token begins is dropped.
  ReasoningDelta finish();

  // The opening tag has come, the closing one has not.
  bool in_reasoning() const {
    return state_ == State::ReasoningBegins || state_ == State::Reasoning;
  }
  // What came last may be the beginning of the closing tag.
  bool may_close() const;
  // No more reasoning can come.
  bool in_answer() const { return state_ >= State::AnswerBegins; }

 private:
  // Rest: of an answer, without marks.
  enum class State { Start, ReasoningBegins, Reasoning, AnswerBegins, Answer, Rest };
  bool advance(ReasoningDelta& delta);  // false: waits for more text
  size_t held_of_close(std::string_view text) const;
  bool drop_mark(ReasoningDelta& delta);

  ReasoningTags tags_;
  State state_;
  bool grammar_;
  std::string held_;
};

}  // namespace ktx::text
