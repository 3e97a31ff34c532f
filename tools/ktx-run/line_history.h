// Lines of earlier sessions, oldest first, in a file to which lines are appended.
//
//   _HiStOrY_V2_
//   Tell\040me\040a\040story.
//
// The format is that of libedit, which wrote the file in earlier versions: white space,
// backslashes and control characters in octal, a message of several lines on one line.
// Concurrent sessions append to the same file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::tools {

class LineHistory {
 public:
  // "" keeps nothing between sessions. A file that cannot be read or written is no failure.
  explicit LineHistory(std::string file);

  size_t size() const { return lines_.size(); }
  const std::string& operator[](size_t i) const { return lines_[i]; }
  // An earlier one that is the same goes.
  void add(const std::string& line);

  static constexpr size_t kMostLines = 1000;
  static constexpr size_t kMostLineBytes = 64 << 10;  // in the file; more only in this session

 private:
  void note(const std::string& line);
  void append(const std::string& line) const;
  void shorten_file() const;

  std::string file_;
  std::vector<std::string> lines_;
};

std::string encode_history_line(std::string_view line);
std::string decode_history_line(std::string_view line);

}  // namespace ktx::tools
