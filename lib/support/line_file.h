// A file to which a running program appends lines: a log or a profile.
//
//   LineFile log = KTX_TRY(LineFile::open("access.log", LineFile::Old::GoesOn, "{"));
//   log.add(line);                       // with its newline; in a buffer
//   log.flush();
//   if (Status all = log.finish(); !all) // what could not be written, with its cause
//
// It is written in place, through symbolic links; pipes, terminals and /dev/null are accepted
// too (output_place.h). An existing file that does not begin with `begin` is refused: a log
// must not be appended to a model. A failure loses lines but does not end the program; later
// lines are tried again.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

class LineFile {
 public:
  enum class Old { GoesOn, Goes };  // what becomes of lines that are there already

  static Result<LineFile> open(const std::string& path, Old old, std::string_view begin);
  static LineFile standard_error();
  LineFile(LineFile&&) noexcept;
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile();

  void add(std::string_view lines);
  void flush();
  Status finish();

 private:
  LineFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  std::string buffer_;
  int64_t buffered_ = 0;  // lines
  int64_t lost_ = 0;
  int error_ = 0;  // of the first that was lost
};

}  // namespace ktx
