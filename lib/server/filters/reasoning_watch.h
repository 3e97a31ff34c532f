// Which tokens of an answer are its reasoning, for what decides about tokens: the budget of the
// reasoning, and a grammar that begins behind it.
//
//   auto watch = ReasoningWatch::create(tokenizer, form, prompt, false);
//   watch->accept(think);  watch->inside()   -> true
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/text/answers/harmony.h"
#include "lib/text/answers/reasoning.h"
#include "lib/text/tokenizer/detokenizer.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::server {

// How a model reasons: in messages of a channel, between tags, or not at all.
struct ReasoningForm {
  bool harmony = false;
  std::optional<text::ReasoningTags> tags;
};
// Harmony only where its markers are control tokens: text cannot mark the parts of a message.
ReasoningForm reasoning_form(const text::Tokenizer& tokenizer, std::string_view chat_template);

// The parser in the state that `prompt` leaves an answer in: its last message is open.
text::HarmonyParser begin_harmony(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt,
                                  const std::vector<text::OfferedTool>& tools);

// One answer; copyable, not thread-safe. Keeps a reference to the tokenizer.
class ReasoningWatch {
 public:
  // Nothing where the model does not reason. Tags that are no tokens of their own are found in the
  // text, where an answer begins with them. `open`: the prompt ends within tags (harmony reads that
  // from the prompt). `tools`: those that the answer may call, for calls().
  static std::optional<ReasoningWatch> create(const text::Tokenizer& tokenizer,
                                              const ReasoningForm& form,
                                              std::span<const int32_t> prompt, bool open,
                                              const std::vector<text::OfferedTool>& tools = {});
  void accept(int32_t id);

  bool inside() const;
  // Harmony: the content, or a call, has begun.
  bool answers() const { return harmony_ && harmony_->in_answer(); }
  bool calls() const { return harmony_ && harmony_->in_call(); }
  // No character is begun and not ended, and no tag.
  bool at_boundary() const {
    return text_.at_character() && !(splitter_ && splitter_->may_close());
  }
  // What ends the reasoning; harmony: and opens the content.
  const std::vector<int32_t>& end() const { return end_; }

 private:
  ReasoningWatch(const text::Tokenizer& tokenizer, bool special)
      : tokenizer_(&tokenizer), text_(tokenizer, {.special = special, .at_start = false}) {}

  const text::Tokenizer* tokenizer_;
  text::Detokenizer text_;
  std::optional<text::HarmonyParser> harmony_;
  std::optional<text::ReasoningSplitter> splitter_;  // of tags that are no tokens
  int32_t open_ = -1, close_ = -1;                   // of tags
  bool inside_ = false;
  std::vector<int32_t> end_;
};

}  // namespace ktx::server
