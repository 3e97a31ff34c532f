#include "tools/ktx-run/line_buffer.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/text/graphemes.h"

namespace ktx::tools {
namespace {

// A longer paste is one cell: it would fill the screen, and is not edited by arrow keys.
constexpr size_t kMostPastedLines = 6;
constexpr size_t kMostPastedBytes = 1500;
constexpr int kShownColumns = 30;

// What stands for a character that moves the cursor or is invisible.
std::string visible(std::string_view bytes) {
  if (bytes == "\t") return " ";
  const auto first = static_cast<unsigned char>(bytes.front());
  if (first < 0x20) return fmt::format("^{}", static_cast<char>(first + 0x40));
  if (first == 0x7F) return "^?";
  return "\u00B7";
}

LineCell cell_of(std::string_view bytes, int columns) {
  LineCell cell{std::string(bytes), std::string(bytes), columns};
  if (cell.is_newline()) {
    cell.shown.clear();
  } else if (columns == 0) {
    cell.shown = visible(bytes);
    cell.columns = cell.shown == "\u00B7" ? 1 : static_cast<int>(cell.shown.size());
  }
  return cell;
}

std::vector<LineCell> cells_of(std::string_view text) {
  std::vector<LineCell> cells;
  while (!text.empty()) {
    const text::Grapheme unit = text::next_grapheme(text);
    cells.push_back(cell_of(text.substr(0, unit.length), unit.columns));
    text.remove_prefix(unit.length);
  }
  return cells;
}

std::string one_newline_kind(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

// "[pasted 120 lines: #include <vector> ...]".
LineCell folded(std::string text) {
  const auto newlines = std::count(text.begin(), text.end(), '\n');
  const auto lines = newlines + (text.back() != '\n');
  std::string begin;
  int columns = 0;
  const std::string_view rest = std::string_view(text).substr(0, 400);
  for (const LineCell& cell : cells_of(text::replace_invalid_utf8(rest))) {
    if (columns + cell.columns > kShownColumns || (cell.is_newline() && columns > 0)) break;
    begin += cell.shown;
    columns += cell.columns;
  }
  const std::string head = lines > 1 ? fmt::format("[pasted {} lines: ", lines)
                                     : fmt::format("[pasted {} bytes: ", text.size());
  constexpr std::string_view kTail = " ...]";
  return {std::move(text), head + begin + std::string(kTail),
          static_cast<int>(head.size() + kTail.size()) + columns};
}

}  // namespace

std::string LineBuffer::text() const {
  std::string all;
  for (const LineCell& cell : cells_) all += cell.bytes;
  return all;
}

void LineBuffer::type(std::string_view given) {
  std::string text = text::replace_invalid_utf8(given);
  if (text.empty()) return;
  // A mark joins the character before it: both are split anew.
  size_t begin = cursor_;
  if (begin > 0 && cells_[begin - 1].bytes.size() < kMostPastedBytes) {
    text.insert(0, cells_[--begin].bytes);
  }
  const std::vector<LineCell> cells = cells_of(text);
  cells_.erase(cells_.begin() + begin, cells_.begin() + cursor_);
  cells_.insert(cells_.begin() + begin, cells.begin(), cells.end());
  cursor_ = begin + cells.size();
}

void LineBuffer::paste(std::string_view given) {
  std::string text = text::replace_invalid_utf8(one_newline_kind(given));
  const auto newlines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (newlines < kMostPastedLines && text.size() <= kMostPastedBytes) return type(text);
  cells_.insert(cells_.begin() + cursor_, folded(std::move(text)));
  ++cursor_;
}

void LineBuffer::set(std::string_view text) {
  cells_.clear();
  cursor_ = 0;
  paste(text);
}

void LineBuffer::erase(size_t begin, size_t end, bool keep) {
  if (begin == end) return;
  if (keep) erased_.assign(cells_.begin() + begin, cells_.begin() + end);
  cells_.erase(cells_.begin() + begin, cells_.begin() + end);
  cursor_ = begin;
}

bool LineBuffer::is_space(size_t cell) const {
  const std::string& bytes = cells_[cell].bytes;
  return bytes == " " || bytes == "\t" || bytes == "\n";
}

size_t LineBuffer::word_begin() const {
  size_t at = cursor_;
  while (at > 0 && is_space(at - 1)) --at;
  while (at > 0 && !is_space(at - 1)) --at;
  return at;
}

size_t LineBuffer::word_end() const {
  size_t at = cursor_;
  while (at < cells_.size() && is_space(at)) ++at;
  while (at < cells_.size() && !is_space(at)) ++at;
  return at;
}

void LineBuffer::left() {
  if (cursor_ > 0) --cursor_;
}
void LineBuffer::right() {
  if (cursor_ < cells_.size()) ++cursor_;
}
void LineBuffer::word_left() {
  cursor_ = word_begin();
}
void LineBuffer::word_right() {
  cursor_ = word_end();
}
void LineBuffer::to_begin() {
  cursor_ = 0;
}
void LineBuffer::to_end() {
  cursor_ = cells_.size();
}
void LineBuffer::erase_before() {
  if (cursor_ > 0) erase(cursor_ - 1, cursor_, false);
}
void LineBuffer::erase_at() {
  if (cursor_ < cells_.size()) erase(cursor_, cursor_ + 1, false);
}
void LineBuffer::erase_word_before() {
  erase(word_begin(), cursor_, true);
}
void LineBuffer::erase_word_at() {
  erase(cursor_, word_end(), true);
}
void LineBuffer::erase_to_begin() {
  erase(0, cursor_, true);
}
void LineBuffer::erase_to_end() {
  erase(cursor_, cells_.size(), true);
}
void LineBuffer::put_back() {
  cells_.insert(cells_.begin() + cursor_, erased_.begin(), erased_.end());
  cursor_ += erased_.size();
}
void LineBuffer::swap_two() {
  if (cursor_ == 0 || cells_.size() < 2) return;
  const size_t second = std::min(cursor_, cells_.size() - 1);
  std::swap(cells_[second - 1], cells_[second]);
  cursor_ = second + 1;
}

}  // namespace ktx::tools
