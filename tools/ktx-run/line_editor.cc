#include "tools/ktx-run/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "tools/ktx-run/history_file.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/talk.h"

namespace ktx::tools {
namespace {

constexpr int kHistoryLines = 1000;

}  // namespace

struct LineEditor::State {
  std::string history_file;
  std::string prompt;
  EditLine* editor = nullptr;
  History* history = nullptr;

  static char* current_prompt(EditLine* editor) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return state->prompt.data();
  }
};

LineEditor::LineEditor(std::string history_file) : state_(std::make_unique<State>()) {
  state_->history_file = std::move(history_file);
  if (!isatty(STDIN_FILENO)) return;
  // Editing shows on stderr: stdout is for answers.
  state_->editor = el_init("ktx-run", stdin, stderr, stderr);
  if (!state_->editor) return;
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  if (!state_->history_file.empty()) {
    load_history(state_->history, state_->history_file);
  }
  el_set(state_->editor, EL_CLIENTDATA, state_.get());
  el_set(state_->editor, EL_PROMPT, &State::current_prompt);
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_HIST, history, state_->history);
  el_source(state_->editor, nullptr);  // the user's ~/.editrc
}

LineEditor::~LineEditor() {
  if (state_->history) {
    if (!state_->history_file.empty()) {
      const Status saved = save_history(state_->history, state_->history_file);
      if (!saved) note(saved.error().message);
    }
    history_end(state_->history);
  }
  if (state_->editor) el_end(state_->editor);
}

bool LineEditor::interactive() const {
  return state_->editor != nullptr;
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  take_interrupt();
  std::string line;
  if (!state_->editor) {
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  state_->prompt = prompt;
  int count = 0;
  const char* text = el_gets(state_->editor, &count);
  if (take_interrupt()) {
    el_reset(state_->editor);
    std::cerr << "\n";
    return "";
  }
  if (!text || count <= 0) return std::nullopt;
  line.assign(text, count);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    history(state_->history, &event, H_ENTER, line.c_str());
  }
  return line;
}

}  // namespace ktx::tools
