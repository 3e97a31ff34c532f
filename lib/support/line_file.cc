#include "lib/support/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/support/may_replace.h"
#include "lib/support/output_place.h"
#include "lib/support/write_failure.h"

namespace ktx {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

}  // namespace

Result<LineFile> LineFile::open(const std::string& path, Old old, std::string_view begin) {
  const OutputPlace place = KTX_TRY(find_output(path));
  if (place.kind != OutputPlace::Kind::Stream) KTX_TRY(may_replace(place.path, begin));
  const int fd = open_output(place, old == Old::Goes ? O_TRUNC : O_APPEND);
  if (fd < 0) {
    return Error{fmt::format("{}: cannot write: {}", describe(place), write_failure(errno))};
  }
  return LineFile(path, fd);
}

LineFile LineFile::standard_error() {
  return LineFile("standard error", fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      buffered_(other.buffered_),
      lost_(other.lost_),
      error_(other.error_) {}

LineFile::~LineFile() {
  if (fd_ < 0) return;
  flush();
  close(fd_);
}

void LineFile::add(std::string_view lines) {
  buffer_ += lines;
  buffered_ += std::count(lines.begin(), lines.end(), '\n');
  if (buffer_.size() >= kBufferBytes) flush();
}

void LineFile::flush() {
  const int error = write_all(fd_, buffer_);
  if (error != 0) {
    lost_ += buffered_;
    if (error_ == 0) error_ = error;
  }
  buffer_.clear();
  buffered_ = 0;
}

Status LineFile::finish() {
  flush();
  if (lost_ == 0) return {};
  return Error{fmt::format("{}: {} lines are missing: {}", path_, lost_, write_failure(error_))};
}

}  // namespace ktx
