// Prints an answer to stdout while it is generated.
//
// On a terminal, reasoning is dim and without its tags, and an empty line separates it from the
// content. Elsewhere, and with NO_COLOR, the text is printed as the model produced it, with
// tags. In the harmony form (gpt-oss) reasoning and content are messages, and Kimi-K3 marks both:
// elsewhere the content alone is printed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/text/answers/harmony.h"
#include "lib/text/answers/reasoning.h"

namespace ktx::tools {

class AnswerView {
 public:
  // `tags`: those of the model's template, none when it does not reason. `prompt` is what the
  // template made: it may have opened the reasoning already.
  AnswerView(const std::optional<text::ReasoningTags>& tags, const std::string& prompt);
  // `parser`: in the state that the prompt leaves the answer in.
  explicit AnswerView(text::HarmonyParser parser);

  void add(const std::string& text);
  // A control token: whether it is a part of the text, as one of the reasoning's tags is.
  bool marker(std::string_view token);
  void finish();  // and a newline
  // The message of an answer whose text this is: without reasoning where the model marks both.
  const std::string& message(const std::string& text) const { return marks_ ? content_ : text; }

 private:
  void print(const text::ReasoningDelta& delta);
  void print(const text::HarmonyDelta& delta);
  void dim(bool on);

  std::optional<text::ReasoningSplitter> splitter_;  // none: as it comes
  std::optional<text::HarmonyParser> harmony_;
  std::optional<text::ReasoningTags> tags_;
  bool marks_;  // content and reasoning
  std::string content_;
  bool shows_styles_;
  bool dim_ = false;
  bool reasoned_ = false;
};

}  // namespace ktx::tools
