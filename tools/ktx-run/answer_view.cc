#include "tools/ktx-run/answer_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include "lib/support/env.h"
#include "tools/ktx-run/raw_terminal.h"

namespace ktx::tools {

namespace {

bool stdout_shows_styles() {
  return isatty(STDOUT_FILENO) && env("TERM") != "dumb" && !env("NO_COLOR");
}

}  // namespace

AnswerView::AnswerView(text::HarmonyParser parser)
    : harmony_(std::move(parser)), marks_(true), shows_styles_(stdout_shows_styles()) {}

AnswerView::AnswerView(const std::optional<text::ReasoningTags>& tags, const std::string& prompt)
    : tags_(tags), marks_(tags && !tags->marks.empty()), shows_styles_(stdout_shows_styles()) {
  if (tags && (shows_styles_ || marks_)) {
    splitter_.emplace(*tags, text::prompt_opens_reasoning(prompt, *tags));
  }
}

void AnswerView::add(const std::string& text) {
  if (harmony_) {
    print(harmony_->text(text));
  } else if (splitter_) {
    print(splitter_->add(text));
  } else {
    fmt::print("{}", text);
  }
  std::fflush(stdout);
}

bool AnswerView::marker(std::string_view token) {
  if (harmony_) print(harmony_->marker(token));
  std::fflush(stdout);
  return tags_ && (tags_->open.find(token) != token.npos || tags_->close.find(token) != token.npos);
}

void AnswerView::finish() {
  if (harmony_) print(harmony_->finish());
  if (splitter_) print(splitter_->finish());
  dim(false);
  fmt::print("\n");
  std::fflush(stdout);
}

void AnswerView::print(const text::HarmonyDelta& delta) {
  print(text::ReasoningDelta{delta.reasoning, delta.content});
}

void AnswerView::print(const text::ReasoningDelta& delta) {
  content_ += delta.answer;
  if (shows_styles_ && !delta.reasoning.empty()) {
    dim(true);
    fmt::print("{}", delta.reasoning);
    reasoned_ = true;
  }
  if (delta.answer.empty()) return;
  dim(false);
  if (reasoned_) fmt::print("\n\n");
  reasoned_ = false;
  fmt::print("{}", delta.answer);
}

void AnswerView::dim(bool on) {
  if (dim_ == on) return;
  dim_ = on;
  // Before the style, so that a signal in between finds it noted.
  if (on) note_style(STDOUT_FILENO);
  fmt::print("{}", on ? "\x1b[2m" : "\x1b[22m");
  if (on) return;
  std::fflush(stdout);
  note_style(-1);
}

}  // namespace ktx::tools
