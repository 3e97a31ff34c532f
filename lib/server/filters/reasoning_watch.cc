#include "lib/server/filters/reasoning_watch.h"

#include <algorithm>
#include <string>

#include "lib/text/answers/tool_calls.h"

namespace ktx::server {
namespace {

bool has_harmony_tokens(const text::Tokenizer& tokenizer) {
  for (const std::string_view marker :
       {text::kHarmonyStart, text::kHarmonyChannel, text::kHarmonyMessage, text::kHarmonyEnd}) {
    const auto id = tokenizer.find(marker);
    if (!id || !tokenizer.is_control(*id)) return false;
  }
  return true;
}

}  // namespace

ReasoningForm reasoning_form(const text::Tokenizer& tokenizer, std::string_view chat_template) {
  const bool harmony =
      text::detect_tool_call_format(chat_template) == text::ToolCallFormat::Harmony &&
      has_harmony_tokens(tokenizer);
  return {harmony, text::detect_reasoning(chat_template)};
}

text::HarmonyParser begin_harmony(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt,
                                  const std::vector<text::OfferedTool>& tools) {
  text::HarmonyParser parser(tools);
  const auto start = tokenizer.find(text::kHarmonyStart);
  if (!start) return parser;
  const auto last = std::find(prompt.rbegin(), prompt.rend(), *start);
  if (last == prompt.rend()) return parser;
  text::Detokenizer detokenizer(tokenizer, {.special = false, .at_start = false});
  for (auto id = last.base() - 1; id != prompt.end(); ++id) {
    if (tokenizer.is_control(*id)) {
      (void)parser.marker(tokenizer.piece(*id));
    } else {
      (void)parser.text(detokenizer.add(*id));
    }
  }
  return parser;
}

std::optional<ReasoningWatch> ReasoningWatch::create(const text::Tokenizer& tokenizer,
                                                     const ReasoningForm& form,
                                                     std::span<const int32_t> prompt, bool open,
                                                     const std::vector<text::OfferedTool>& tools) {
  ReasoningWatch watch(tokenizer, false);
  if (form.harmony) {
    watch.harmony_ = begin_harmony(tokenizer, prompt, tools);
    const std::string behind = std::string(text::kHarmonyEnd) + std::string(text::kHarmonyStart) +
                               "assistant" + std::string(text::kHarmonyOpensContent);
    watch.end_ = tokenizer.encode(behind, {.parse_special = true});
    return watch;
  }
  if (!form.tags) return std::nullopt;
  const auto first = tokenizer.find(form.tags->open_token);
  const auto close = tokenizer.find(form.tags->close);
  if (!first || !close) {
    ReasoningWatch in_text(tokenizer, true);
    in_text.splitter_.emplace(*form.tags, open);
    in_text.end_ = tokenizer.encode(form.tags->close, {.parse_special = true});
    return in_text;
  }
  watch.open_ = *first;
  watch.close_ = *close;
  watch.inside_ = open;
  watch.end_ = {*close};
  return watch;
}

bool ReasoningWatch::inside() const {
  if (harmony_) return !answers() && harmony_->in_body();
  return splitter_ ? splitter_->in_reasoning() : inside_;
}

void ReasoningWatch::accept(int32_t id) {
  if (splitter_) {
    (void)splitter_->add(text_.add(id));
    return;
  }
  if (!harmony_) {
    if (id == open_) inside_ = true;
    if (id == close_) inside_ = false;
    (void)text_.add(id);
    return;
  }
  if (tokenizer_->is_control(id)) {
    (void)text_.finish();
    (void)harmony_->marker(tokenizer_->piece(id));
  } else {
    (void)harmony_->text(text_.add(id));
  }
}

}  // namespace ktx::server
