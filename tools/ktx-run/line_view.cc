#include "tools/ktx-run/line_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <vector>

#include "lib/formats/layout.h"
#include "lib/text/graphemes.h"
#include "tools/ktx-run/raw_terminal.h"

namespace ktx::tools {
namespace {

constexpr std::string_view kMorePrompt = "... ";  // of the rows behind a newline

struct Size {
  size_t columns = 80, rows = 24;
};

Size terminal_size(int fd) {
  winsize size = {};
  Size found;
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return found;
  if (size.ws_col >= 8) found.columns = size.ws_col;
  if (size.ws_row >= 2) found.rows = size.ws_row;
  return found;
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const text::Grapheme unit = text::next_grapheme(text);
    columns += static_cast<size_t>(unit.columns);
    text.remove_prefix(unit.length);
  }
  return columns;
}

struct Layout {
  std::vector<std::string> rows;
  size_t cursor_row = 0, cursor_column = 0;
};

// The last column stays free: terminals differ in where the cursor is behind it.
Layout lay_out(const std::string& prompt, const std::vector<LineCell>& cells, size_t cursor,
               size_t columns) {
  size_t column = columns_of(prompt);
  Layout layout{{prompt}, 0, column};
  for (size_t i = 0; i <= cells.size(); ++i) {
    const bool wraps = i < cells.size() && !cells[i].is_newline() && column > 0 &&
                       column + static_cast<size_t>(cells[i].columns) > columns - 1;
    if (wraps) {
      layout.rows.emplace_back();
      column = 0;
    }
    if (i == cursor) {
      layout.cursor_row = layout.rows.size() - 1;
      layout.cursor_column = column;
    }
    if (i == cells.size()) break;
    if (cells[i].is_newline()) {
      layout.rows.emplace_back(kMorePrompt);
      column = kMorePrompt.size();
    } else {
      layout.rows.back() += cells[i].shown;
      column += static_cast<size_t>(cells[i].columns);
    }
  }
  return layout;
}

}  // namespace

std::string LineView::frame(const std::string& prompt, const LineBuffer& buffer, size_t cursor) {
  const Size size = terminal_size(fd_);
  const Layout layout = lay_out(prompt, buffer.cells(), cursor, size.columns);
  const size_t all = layout.rows.size();
  const size_t shown = std::min(all, size.rows - 1);
  size_t first = layout.cursor_row + 1 > shown ? layout.cursor_row + 1 - shown : 0;
  first = std::min(first, all - shown);
  std::string out = "\r";
  if (cursor_row_ > 0) out += fmt::format("\x1b[{}A", cursor_row_);
  out += "\x1b[J";
  for (size_t row = first; row < first + shown; ++row) {
    if (row > first) out += "\r\n";
    out += layout.rows[row];
  }
  cursor_row_ = layout.cursor_row - first;
  // Behind the last character the cursor is where the terminal has it: right also for a
  // character whose columns the terminal counts otherwise.
  if (cursor < buffer.cells().size()) {
    const size_t up = shown - 1 - cursor_row_;
    if (up > 0) out += fmt::format("\x1b[{}A", up);
    out += "\r";
    if (layout.cursor_column > 0) out += fmt::format("\x1b[{}C", layout.cursor_column);
  }
  return out;
}

void LineView::draw(const std::string& prompt, const LineBuffer& buffer) {
  write_terminal(fd_, frame(prompt, buffer, buffer.cursor()));
}

void LineView::leave(const std::string& prompt, const LineBuffer& buffer) {
  write_terminal(fd_, frame(prompt, buffer, buffer.cells().size()) + "\r\n");
  cursor_row_ = 0;
}

void LineView::clear_screen() {
  write_terminal(fd_, "\x1b[H\x1b[2J");
  cursor_row_ = 0;
}

}  // namespace ktx::tools
