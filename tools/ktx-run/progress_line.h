// Shows the current activity in one line of the terminal, which disappears at the end:
//
//   prompt: 2048 of 32000 tokens, 312 t/s
//
// Only if stderr is a terminal with escape sequences; otherwise nothing is written. An activity
// of less than half a second is not shown.
#pragma once

#include <cstdint>
#include <string>

#include "lib/support/timer.h"

namespace ktx::tools {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { erase(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_seen() const { return on_; }
  // Writes the line over the one before it; calls too soon after another do nothing. Any
  // thread, one at a time.
  void show(const std::string& text);
  // At once, whatever the time.
  void show_now(const std::string& text);
  void erase();

 private:
  bool on_ = false;
  bool shown_ = false;
  Timer begun_;
  Timer last_;
};

// "prompt: 2048 of 32000 tokens, 312 t/s" after so many seconds.
std::string prompt_progress(double done, int64_t total, double seconds);

}  // namespace ktx::tools
