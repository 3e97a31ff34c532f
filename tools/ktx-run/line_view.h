// Draws the line being edited, over as many rows of the terminal as it takes.
//
//   > a long message that does not fit the wid|
//   th of the terminal
//
// Each drawing replaces the previous one. If the line does not fit the height, rows away from
// the cursor are left out.
#pragma once

#include <string>

#include "tools/ktx-run/line_buffer.h"

namespace ktx::tools {

class LineView {
 public:
  explicit LineView(int fd) : fd_(fd) {}

  void draw(const std::string& prompt, const LineBuffer& buffer);
  // Draws with the cursor behind the text and goes to a new row.
  void leave(const std::string& prompt, const LineBuffer& buffer);
  void clear_screen();

 private:
  std::string frame(const std::string& prompt, const LineBuffer& buffer, size_t cursor);
  int fd_;
  size_t cursor_row_ = 0;  // of the last drawing, from its first row
};

}  // namespace ktx::tools
