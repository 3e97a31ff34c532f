// Keeps a file from being moved elsewhere (moved_file.h) while it is read.
//
//   const ReadLock lock = KTX_TRY(ReadLock::take("m.gguf"));   // before its first byte is read
//
// Readers share it. A move has the file alone from before its first look, long before the file has
// another name, and gives its blocks back then: a reader that came in between would take zeros for
// weights. Without locks of the file system, a reader is not kept from anything.
#pragma once

#include <string>
#include <utility>

#include "lib/support/result.h"

namespace ktx {

class ReadLock {
 public:
  // Fails where a move has the file, after a moment: programs that look for users of a file, or
  // give it its name, have it alone for that long.
  static Result<ReadLock> take(const std::string& path);
  ReadLock() = default;  // of nothing
  ReadLock(ReadLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ReadLock& operator=(ReadLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ReadLock();

 private:
  explicit ReadLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace ktx
