// Prints an answer to stdout while it is generated.
//
// On a terminal, reasoning is dim and without its tags, and an empty line separates it from the
// content. Elsewhere, and with NO_COLOR, the text is printed as the model produced it, with
// tags.
#pragma once

#include <optional>
#include <string>

#include "lib/text/answers/reasoning.h"

namespace ktx::tools {

class AnswerView {
 public:
  // `tags`: those of the model's template, none when it does not reason. `prompt` is what the
  // template made: it may have opened the reasoning already.
  AnswerView(const std::optional<text::ReasoningTags>& tags, const std::string& prompt);

  void add(const std::string& text);
  void finish();  // and a newline

 private:
  void print(const text::ReasoningDelta& delta);
  void dim(bool on);

  std::optional<text::ReasoningSplitter> splitter_;  // none: as it comes
  bool dim_ = false;
  bool reasoned_ = false;
};

}  // namespace ktx::tools
