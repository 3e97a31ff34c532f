#include "lib/support/file_stamp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/support/moved_file.h"

namespace ktx {
namespace {

int64_t nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<FileStamp> stamp_file(const std::string& path) {
  // Opened rather than asked for by name: a network file system then looks at its server.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info = {};
  const bool known = fd >= 0 && fstat(fd, &info) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!known) return Error{fmt::format("{}: cannot open: {}", path, std::strerror(error))};
  return FileStamp{info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
                   nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

Status check_unchanged(const std::string& path, const FileStamp& stamp) {
  Result<FileStamp> now = stamp_file(path);
  // Removed; or moved elsewhere by another process, and not whole any more (moved_file.h).
  if (!now) now = stamp_file(path + kMovingSuffix);
  if (!now || *now == stamp) return {};
  return Error{fmt::format(
      "{}: the file was changed or replaced while it was read; start again when it is whole",
      path)};
}

}  // namespace ktx
