#include "lib/support/work_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lib/support/may_replace.h"
#include "lib/support/sigbus_guard.h"
#include "lib/support/strings.h"
#include "lib/support/write_failure.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // since Linux 5.14; before it, all threads go through pwrite()
#endif

namespace ktx {
namespace {

Error file_error(const std::string& path, std::string_view what, int error) {
  return Error{fmt::format("{}: {}: {}", path, what, write_failure(error))};
}

// A new file has the owner and the permissions of the one that it replaces: a plan that only
// some may read stays so, also while it is made. The owner is root's to give.
void take_permissions(int fd, const OutputPlace& place) {
  struct stat info = {};
  if (place.kind != OutputPlace::Kind::File || stat(place.path.c_str(), &info) != 0) return;
  (void)!fchown(fd, info.st_uid, info.st_gid);
  (void)fchmod(fd, info.st_mode & 0777);
}

Error not_ours(const std::string& work_path) {
  return Error{fmt::format("{}: not a regular file; remove it", work_path)};
}

// A file system in memory reserves by taking the pages from the system, one after the other
// and in one thread (4 GB/s, as much as packing on four cores): its pages are taken as they
// are written.
bool in_memory(int fd) {
  struct statfs system = {};
  return fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

}  // namespace

Result<WorkFile> WorkFile::open(const std::string& target, std::string_view magic, mode_t mode,
                                std::string_view suffix) {
  OutputPlace place = KTX_TRY(find_output(target));
  if (place.kind == OutputPlace::Kind::Stream) {
    return Error{
        fmt::format("{}: it is a pipe or a device, and not a regular file; name a file "
                    "to write",
                    describe(place))};
  }
  KTX_TRY(may_replace(place.path, magic));
  // The file may be renamed or removed by its last writer between open and lock:
  // then the lock is on a file that has lost its name (it may be a finished one),
  // which must not be touched.
  const std::string path = place.path + std::string(suffix);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0 && errno == ELOOP) return not_ours(path);
    if (fd < 0) return file_error(path, "cannot create the work file", errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      close(fd);
      if (error != EWOULDBLOCK) return file_error(path, "cannot lock", error);
      return Error{
          fmt::format("{}: another process is writing this file; wait for it, or write "
                      "to another one",
                      target)};
    }
    struct stat mine = {};
    struct stat named = {};
    const bool same = fstat(fd, &mine) == 0 && stat(path.c_str(), &named) == 0 &&
                      mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
    if (same && S_ISREG(mine.st_mode)) {
      take_permissions(fd, place);
      return WorkFile(std::move(place), suffix, fd);
    }
    close(fd);
    if (same) return not_ours(path);
  }
  return Error{fmt::format("{}: other processes keep writing this file", target)};
}

WorkFile::WorkFile(WorkFile&& other) noexcept
    : place_(std::move(other.place_)),
      suffix_(std::move(other.suffix_)),
      fd_(std::exchange(other.fd_, -1)),
      writing_(std::move(other.writing_)),
      committed_(other.committed_),
      left_(other.left_) {}

WorkFile::~WorkFile() {
  if (fd_ < 0) return;
  if (!committed_ && !left_) unlink(path().c_str());  // before the lock goes
  close(fd_);
}

Error WorkFile::error(std::string_view what, int error_number) const {
  return file_error(describe(place_), what, error_number);
}

uint64_t WorkFile::size() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

namespace {

Error disk_full(const std::string& target, uint64_t bytes, uint64_t available) {
  return Error{
      fmt::format("{}: no space left on the device: the file needs {} ({} bytes), {} "
                  "({} bytes) are free; free some or write elsewhere",
                  target, human_bytes(bytes), bytes, human_bytes(available), available)};
}

// With those that the file has already.
uint64_t free_bytes(int fd) {
  struct statvfs space = {};
  struct stat info = {};
  if (fstatvfs(fd, &space) != 0 || fstat(fd, &info) != 0) return UINT64_MAX;
  return uint64_t{space.f_bavail} * space.f_frsize + static_cast<uint64_t>(info.st_blocks) * 512;
}

}  // namespace

Status WorkFile::check_space(uint64_t bytes, uint64_t given_back) const {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < bytes) {  // a write past it would be a signal, not an error
    return Error{
        fmt::format("{}: the file needs {} ({} bytes) and this process may write files "
                    "of {} bytes; raise the limit (ulimit -f)",
                    target(), human_bytes(bytes), bytes, limit.rlim_cur)};
  }
  const uint64_t needed = bytes - std::min(bytes, given_back), available = free_bytes(fd_);
  if (needed > available) return disk_full(target(), needed, available);
  return {};
}

Status WorkFile::reserve(uint64_t bytes) {
  if (bytes == 0) return truncate(0);
  KTX_TRY(check_space(bytes));  // fallocate would fill the disk to find out
  if (!in_memory(fd_) && fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == ENOSPC || errno == EDQUOT) return disk_full(target(), bytes, free_bytes(fd_));
    if (errno != EOPNOTSUPP && errno != ENOSYS) return error("cannot reserve space", errno);
  }
  return truncate(bytes);
}

Status WorkFile::truncate(uint64_t bytes) {
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return error("cannot set its size", errno);
  return {};
}

Status WorkFile::set_written(int64_t seconds) {
  const timespec times[] = {{0, UTIME_OMIT}, {static_cast<time_t>(seconds), 0}};
  if (futimens(fd_, times) != 0) return error("cannot set its time", errno);
  return {};
}

// False when it cannot be done, and the file is as it was: then the system is asked, and says
// why. No store into the mapping is a signal: its pages are made first, which fails where there
// is no space for them or the file ends.
bool WorkFile::copy_into_memory(uint64_t offset, std::span<const std::byte> bytes) {
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t lead = offset % kPageBytes, size = lead + bytes.size();
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_,
                      static_cast<off_t>(offset - lead));
  if (memory == MAP_FAILED) return false;
  (void)madvise(memory, size, MADV_HUGEPAGE);  // where the file system has them: chunk_hash.h
  bool copied = madvise(memory, size, MADV_POPULATE_WRITE) == 0;
  if (copied) {
    const SigbusGuard guard(memory, size, /*writable=*/true);  // the file may be truncated
    std::memcpy(static_cast<std::byte*>(memory) + lead, bytes.data(), bytes.size());
    copied = !guard.hit();
  }
  munmap(memory, size);
  return copied;
}

namespace {

// The system reads pages of a mapped file that became smaller without the guard of the mapping, and
// fails (EFAULT), as if the file written were at fault. Read here they are zeros from now on, and
// the mapped file's own check() has the message.
void touch_pages(std::span<const std::byte> bytes) {
  constexpr size_t kPageBytes = 4096;
  for (size_t at = 0; at < bytes.size(); at += kPageBytes) {
    (void)*static_cast<const volatile std::byte*>(bytes.data() + at);
  }
  (void)*static_cast<const volatile std::byte*>(&bytes.back());
}

}  // namespace

Status WorkFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  constexpr size_t kWorthMapping = 64 << 10;
  bool touched = false;
  const std::unique_lock turn(*writing_, std::try_to_lock);
  if (!turn && bytes.size() >= kWorthMapping && copy_into_memory(offset, bytes)) return {};
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EFAULT && !std::exchange(touched, true)) {
      touch_pages(bytes);
      continue;
    }
    if (n < 0) return error("cannot write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status WorkFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error("cannot read the work file", errno);
    if (n == 0) return Error{fmt::format("{}: the file became smaller while in use", path())};
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status WorkFile::sync() {
  if (fsync(fd_) != 0) return error("cannot write", errno);
  return {};
}

Status WorkFile::commit(bool sync) {
  if (sync) KTX_TRY(this->sync());
  if (rename(path().c_str(), place_.path.c_str()) != 0) {
    return error("cannot put it in place", errno);
  }
  committed_ = true;
  if (sync) sync_folder_of(place_.path);
  return {};
}

}  // namespace ktx
