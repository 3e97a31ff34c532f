// The line being edited: cells of one visible character each, and a cursor.
//
// A cell is what one press of backspace removes: a letter with its marks, a joined emoji, a
// newline, or a long pasted text, which is shown as "[pasted 120 lines: #include ...]". The
// bytes are always valid UTF-8; other bytes have been replaced by U+FFFD.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::tools {

struct LineCell {
  std::string bytes;
  std::string shown;  // without control characters; empty for a newline
  int columns = 0;
  bool is_newline() const { return bytes == "\n"; }
};

class LineBuffer {
 public:
  const std::vector<LineCell>& cells() const { return cells_; }
  size_t cursor() const { return cursor_; }
  bool empty() const { return cells_.empty(); }
  std::string text() const;

  // Puts text at the cursor. Marks and joiners go to the character before them.
  void type(std::string_view text);
  // The same for a text that came at once: newlines become one kind, and a long text is
  // one cell.
  void paste(std::string_view text);
  void set(std::string_view text);  // replaces all; the cursor is at the end

  // Keys (line_keys.def).
  void left();
  void right();
  void word_left();
  void word_right();
  void to_begin();
  void to_end();
  void erase_before();
  void erase_at();
  void erase_word_before();
  void erase_word_at();
  void erase_to_begin();
  void erase_to_end();
  void put_back();  // what was erased last by word or to an end
  void swap_two();
  void new_line() { type("\n"); }

 private:
  bool is_space(size_t cell) const;
  size_t word_begin() const;
  size_t word_end() const;
  void erase(size_t begin, size_t end, bool keep);

  std::vector<LineCell> cells_;
  std::vector<LineCell> erased_;
  size_t cursor_ = 0;
};

}  // namespace ktx::tools
