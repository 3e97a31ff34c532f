#include "lib/plan_cache/entry_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/plan_cache/cache_folder.h"

namespace ktx::plan_cache {
namespace {

// flock() that a signal does not end.
int lock_file(int fd, int operation) {
  int status = -1;
  do status = flock(fd, operation);
  while (status != 0 && errno == EINTR);
  return status;
}

// A remover may have taken the name away between open and lock.
bool still_named(int fd, const std::string& path) {
  struct stat mine = {}, named = {};
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
         mine.st_ino == named.st_ino;
}

}  // namespace

EntryLock::EntryLock(EntryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
EntryLock& EntryLock::operator=(EntryLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
EntryLock::~EntryLock() {
  if (fd_ >= 0) close(fd_);
}

Result<std::optional<EntryLock>> EntryLock::open(const std::string& folder, Kind kind, Wait wait,
                                                 bool make) {
  const std::string path = folder + "/" + kLockName;
  const int operation =
      (kind == Kind::Shared ? LOCK_SH : LOCK_EX) | (wait == Wait::Yes ? 0 : LOCK_NB);
  while (true) {
    if (make) KTX_TRY(make_private_folder(folder));
    EntryLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (lock.fd_ < 0 && errno == ENOENT) {  // the folder was removed
      if (make) continue;
      return std::optional<EntryLock>();
    }
    if (lock.fd_ < 0) {
      return Error{
          fmt::format("{}: cannot open the lock: {}; {}", path, std::strerror(errno), kOtherCache)};
    }
    if (lock_file(lock.fd_, operation) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<EntryLock>();
      return Error{fmt::format("{}: cannot lock: {}; {}", path, std::strerror(errno), kOtherCache)};
    }
    if (still_named(lock.fd_, path)) return std::optional<EntryLock>(std::move(lock));
  }
}

Result<std::optional<EntryLock>> EntryLock::take(const std::string& folder, Kind kind, Wait wait) {
  return open(folder, kind, wait, true);
}
Result<std::optional<EntryLock>> EntryLock::take_existing(const std::string& folder, Kind kind,
                                                          Wait wait) {
  return open(folder, kind, wait, false);
}

Status EntryLock::share() {
  if (lock_file(fd_, LOCK_SH) == 0) return {};
  return Error{fmt::format("cannot share the lock of a plan: {}", std::strerror(errno))};
}

void EntryLock::touch() {
  (void)futimens(fd_, nullptr);
}

}  // namespace ktx::plan_cache
