#include "tools/ktx-run/line_editor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>

#include "lib/support/env.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/key_reader.h"
#include "tools/ktx-run/line_buffer.h"
#include "tools/ktx-run/line_history.h"
#include "tools/ktx-run/line_search.h"
#include "tools/ktx-run/line_view.h"
#include "tools/ktx-run/raw_terminal.h"

namespace ktx::tools {
namespace {

struct LineKey {
  std::string_view bytes;
  void (LineBuffer::*run)();
};
constexpr LineKey kLineKeys[] = {
#define KTX_LINE_KEY(bytes, function) {bytes, &LineBuffer::function},
#include "tools/ktx-run/line_keys.def"
};

// Keys that are more than a change of the line; an end of input is kCtrlD, too.
constexpr std::string_view kEnter[] = {"\r", "\n"};
constexpr std::string_view kUp[] = {"\x10", "\x1b[A", "\x1bOA"};
constexpr std::string_view kDown[] = {"\x0e", "\x1b[B", "\x1bOB"};
constexpr std::string_view kCtrlC = "\x03", kCtrlD = "\x04", kCtrlL = "\x0c", kCtrlZ = "\x1a";

bool is_one_of(std::string_view bytes, std::span<const std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), bytes) != keys.end();
}

// Where the line is shown: not on stdout, which is for answers.
int terminal_out() {
  return isatty(STDERR_FILENO) ? STDERR_FILENO : isatty(STDOUT_FILENO) ? STDOUT_FILENO : -1;
}

bool knows_escapes() {
  return env("TERM") != "dumb";
}

}  // namespace

struct LineEditor::State {
  explicit State(std::string history_file)
      : terminal(isatty(STDIN_FILENO)),
        out(terminal && knows_escapes() ? terminal_out() : -1),
        history(terminal ? std::move(history_file) : "") {}

  bool terminal;
  int out;  // where lines are edited; -1: they are not
  KeyReader keys{STDIN_FILENO};
  LineHistory history;
};

LineEditor::LineEditor(std::string history_file)
    : state_(std::make_unique<State>(std::move(history_file))) {
  if (state_->out >= 0) guard_terminal();
}
LineEditor::~LineEditor() = default;

bool LineEditor::interactive() const {
  return state_->terminal;
}

InputLine LineEditor::read(const std::string& prompt) {
  take_interrupt();
  return state_->out >= 0 ? edit(prompt) : plain(prompt);
}

InputLine LineEditor::plain(const std::string& prompt) {
  if (state_->terminal) {
    fmt::print(stderr, "{}", prompt);
    std::fflush(stderr);
  }
  while (true) {
    Key key = state_->keys.line();
    if (key.kind == Key::Interrupted && !take_interrupt()) continue;
    const bool is_text = key.kind == Key::Text;
    if (!is_text && state_->terminal) fmt::print(stderr, "\n");
    if (key.kind == Key::Interrupted) return {InputLine::Cancelled, {}};
    if (!key.bytes.empty() && key.bytes.back() == '\r') key.bytes.pop_back();
    return {is_text ? InputLine::Text : InputLine::End, std::move(key.bytes)};
  }
}

InputLine LineEditor::edit(const std::string& prompt) {
  State& s = *state_;
  RawTerminal raw(STDIN_FILENO, s.out);
  LineView view(s.out);
  LineBuffer buffer;
  size_t at = s.history.size();  // in the history; its size: the line being written
  std::string draft;
  const auto recall = [&](size_t to) {
    if (at == s.history.size()) draft = buffer.text();
    at = to;
    buffer.set(at == s.history.size() ? draft : s.history[at]);
  };
  const auto leave = [&](InputLine::Kind kind) {
    view.leave(prompt, buffer);
    std::string text = buffer.text();
    if (kind == InputLine::Text) {
      text.erase(text.find_last_not_of('\n') + 1);
      s.history.add(text);
    }
    return InputLine{kind, std::move(text)};
  };
  view.draw(prompt, buffer);
  while (true) {
    Key key = s.keys.next();
    if (key.kind == Key::Control && key.bytes == kSearchKey) {
      key = search_history(s.keys, view, s.history, buffer);
    }
    switch (key.kind) {
      case Key::Text:
        buffer.type(key.bytes);
        break;
      case Key::Paste:
        buffer.paste(key.bytes);
        break;
      case Key::TooLong:
        write_terminal(s.out, fmt::format("\r\nthe pasted text is longer than {} MiB and was "
                                          "dropped; /file PATH sends a file\r\n",
                                          KeyReader::kMostPasteBytes >> 20));
        break;
      case Key::Interrupted:
        if (take_interrupt()) return leave(InputLine::Cancelled);
        break;
      case Key::End:
        return leave(buffer.empty() ? InputLine::End : InputLine::Text);
      case Key::Control: {
        if (is_one_of(key.bytes, kEnter)) return leave(InputLine::Text);
        if (key.bytes == kCtrlC) return leave(InputLine::Cancelled);
        if (key.bytes == kCtrlD && buffer.empty()) return leave(InputLine::End);
        if (key.bytes == kCtrlD) buffer.erase_at();
        if (key.bytes == kCtrlL) view.clear_screen();
        if (key.bytes == kCtrlZ) {
          write_terminal(s.out, "\r\n");
          raw.suspend();
        }
        if (is_one_of(key.bytes, kUp) && at > 0) recall(at - 1);
        if (is_one_of(key.bytes, kDown) && at < s.history.size()) recall(at + 1);
        for (const LineKey& row : kLineKeys) {
          if (row.bytes == key.bytes) (buffer.*row.run)();
        }
        if (key.bytes == "\t") buffer.type("\t");
        break;
      }
    }
    if (!s.keys.more()) view.draw(prompt, buffer);
  }
}

}  // namespace ktx::tools
