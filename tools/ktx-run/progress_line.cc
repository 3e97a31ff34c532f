#include "tools/ktx-run/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include "lib/support/env.h"
#include "tools/ktx-run/raw_terminal.h"
#include "tools/terminal_columns.h"

namespace ktx::tools {
namespace {

constexpr double kFirstSeconds = 0.5;
constexpr double kNextSeconds = 0.1;

}  // namespace

ProgressLine::ProgressLine() : on_(isatty(STDERR_FILENO) && env("TERM") != "dumb") {}

void ProgressLine::show(const std::string& text) {
  if (!on_) return;
  if (shown_ ? last_.seconds() < kNextSeconds : begun_.seconds() < kFirstSeconds) return;
  show_now(text);
}

void ProgressLine::show_now(const std::string& text) {
  if (!on_) return;
  // A line that wraps could not be erased.
  write_terminal(STDERR_FILENO, "\r\x1b[K" + text.substr(0, terminal_columns(STDERR_FILENO) - 1));
  shown_ = true;
  last_ = Timer();
}

void ProgressLine::erase() {
  if (shown_) write_terminal(STDERR_FILENO, "\r\x1b[K");
  shown_ = false;
}

std::string prompt_progress(double done, int64_t total, double seconds) {
  return fmt::format("prompt: {:.0f} of {} tokens, {:.0f} t/s", done, total,
                     seconds > 0 ? done / seconds : 0.0);
}

}  // namespace ktx::tools
