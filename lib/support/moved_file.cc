#include "lib/support/moved_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lib/support/output_place.h"

namespace ktx {
namespace {

constexpr const char* kOpenElsewhere = "another program has this file open; end it first";
constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

Error refuse(const std::string& path, std::string_view why) {
  return Error{fmt::format("{}: {}", path, why)};
}

int64_t modified_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// A write lease is refused while another program has the file open. File systems without leases
// refuse it always, as do files of other owners, with another error.
bool open_elsewhere(int fd) {
  if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
  }
  return errno == EAGAIN;
}

// Fails where there is a file of the new name, as far as the file system can make sure of it.
bool rename_new(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (access(to.c_str(), F_OK) == 0) {
    errno = EEXIST;
    return false;
  }
  return rename(from.c_str(), to.c_str()) == 0;
}

// What is in the way of moving the open file, which is called `path`.
Status check_file(const std::string& path, int fd) {
  struct stat info = {}, named = {};
  if (fstat(fd, &info) != 0 || lstat(path.c_str(), &named) != 0 || info.st_ino != named.st_ino ||
      info.st_dev != named.st_dev) {
    return refuse(path, "the file was replaced just now; start again");
  }
  if (info.st_nlink > 1) {
    return refuse(path, fmt::format("the file has {} names (hard links), and under the others its "
                                    "contents would be lost as well; remove those, or compile "
                                    "without --consume",
                                    info.st_nlink));
  }
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return refuse(path, fmt::format("its folder cannot be written to, so the file cannot be "
                                    "removed: {}",
                                    std::strerror(errno)));
  }
  if (open_elsewhere(fd)) {
    return refuse(path, kOpenElsewhere);
  }
  // Behind the end, where nothing is lost. It sets the time of a change nevertheless.
  const off_t behind = (info.st_size / (1 << 20) + 1) * (1 << 20);
  const bool punches = fallocate(fd, kPunch, behind, 4096) == 0;
  const int error = errno;
  const struct timespec times[2] = {info.st_atim, info.st_mtim};
  (void)futimens(fd, times);
  if (!punches) {
    return refuse(path, fmt::format("its file system cannot give back parts of a file ({}); "
                                    "compile without --consume",
                                    std::strerror(error)));
  }
  return {};
}

}  // namespace

MovedFile::MovedFile(std::string path, bool begun, int fd)
    : path_(std::move(path)), begun_(begun), fd_(fd) {
  struct stat info = {};
  if (fstat(fd_, &info) != 0) return;
  block_ = std::clamp<uint64_t>(static_cast<uint64_t>(info.st_blksize), 4096, 1 << 20);
}

void MovedFile::note_time() {
  struct stat info = {};
  if (fstat(fd_, &info) == 0) modified_ns_ = modified_ns(info);
}

Result<MovedFile> MovedFile::open(const std::string& path) {
  const std::string moving = path + kMovingSuffix;
  struct stat whole = {}, rest = {};
  const bool has_whole = lstat(path.c_str(), &whole) == 0;
  const bool has_rest = lstat(moving.c_str(), &rest) == 0;
  if (has_whole && has_rest) {
    return refuse(moving,
                  fmt::format("an earlier move was stopped here, and {} is there as well; to "
                              "continue the move, put that file elsewhere; to give it up, remove "
                              "this one",
                              path));
  }
  const std::string& name = has_rest ? moving : path;
  const struct stat& info = has_rest ? rest : whole;
  if (!has_whole && !has_rest) return refuse(path, "cannot open: No such file or directory");
  if (S_ISLNK(info.st_mode)) {
    std::error_code ignored;
    return refuse(name, fmt::format("it is a link to {}, and --consume removes its file; give the "
                                    "file itself, where no other link needs it",
                                    std::filesystem::read_symlink(name, ignored).string()));
  }
  if (!S_ISREG(info.st_mode)) return refuse(name, "not a regular file");
  const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return refuse(name, fmt::format("cannot open it for writing, so its blocks cannot be given "
                                    "back: {}",
                                    std::strerror(errno)));
  }
  MovedFile file(path, has_rest, fd);  // closes it
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return refuse(name, fmt::format("cannot lock: {}", std::strerror(errno)));
    }
    // Readers share the lock (read_lock.h).
    const bool is_read = flock(fd, LOCK_SH | LOCK_NB) == 0;
    return refuse(name,
                  is_read ? kOpenElsewhere : "another process is moving this file; wait for it");
  }
  KTX_TRY(check_file(name, fd));
  file.note_time();
  return file;
}

MovedFile::MovedFile(MovedFile&& other) noexcept
    : path_(std::move(other.path_)),
      begun_(other.begun_),
      renamed_(std::exchange(other.renamed_, false)),
      released_ever_(other.released_ever_),
      fd_(std::exchange(other.fd_, -1)),
      block_(other.block_),
      modified_ns_(other.modified_ns_),
      released_(std::move(other.released_)) {}

MovedFile::~MovedFile() {
  if (fd_ < 0) return;
  if (begun_ && !stays()) (void)rename_new(name(), path_);
  close(fd_);
}

Error MovedFile::error(std::string_view what, int error_number) const {
  return refuse(name(), fmt::format("{}: {}", what, std::strerror(error_number)));
}

uint64_t MovedFile::size() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}
uint64_t MovedFile::disk_bytes() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}
dev_t MovedFile::device() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 ? info.st_dev : 0;
}

uint64_t MovedFile::next_data(uint64_t offset) const {
  const off_t at = lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
  if (at >= 0) return static_cast<uint64_t>(at);
  return errno == ENXIO ? size() : offset;  // all of it, where the system cannot say
}

bool MovedFile::has_all_blocks() const {
  const off_t hole = lseek(fd_, 0, SEEK_HOLE);
  return hole >= 0 && static_cast<uint64_t>(hole) >= size() && disk_bytes() >= size();
}

Status MovedFile::begin() {
  const std::string moving = path_ + kMovingSuffix;
  if (!begun_ && !rename_new(path_, moving)) {
    return error(fmt::format("cannot rename it to {}", moving), errno);
  }
  renamed_ = renamed_ || !begun_;
  begun_ = true;
  sync_folder_of(moving);
  return {};
}

Status MovedFile::check_unchanged() const {
  struct stat info = {};
  if (fstat(fd_, &info) == 0 && modified_ns(info) == modified_ns_) return {};
  return refuse(name(),
                "the file was written to while it was moved; stopped before more of it "
                "was given back");
}

Status MovedFile::release(uint64_t begin, uint64_t end) {
  KTX_ASSERT(begun_);
  if (begin >= end) return {};
  released_ever_ = true;
  KTX_TRY(check_unchanged());
  auto at = released_.upper_bound(begin);
  if (at != released_.begin() && std::prev(at)->second >= begin) --at;
  uint64_t from = begin, to = end;
  while (at != released_.end() && at->first <= end) {
    from = std::min(from, at->first);
    to = std::max(to, at->second);
    at = released_.erase(at);
  }
  released_[from] = to;
  // Whole blocks of the new range; one at an edge comes with its other part.
  const uint64_t file_end = size();
  const uint64_t first = std::max((from + block_ - 1) / block_ * block_, begin / block_ * block_);
  const uint64_t last_whole = to >= file_end ? to + block_ - 1 : to;  // the end fills its block
  const uint64_t last =
      std::min(last_whole / block_ * block_, (end + block_ - 1) / block_ * block_);
  if (first >= last) return {};
  while (fallocate(fd_, kPunch, static_cast<off_t>(first), static_cast<off_t>(last - first)) != 0) {
    if (errno != EINTR) return error("cannot give back its blocks", errno);
  }
  note_time();
  return {};
}

Status MovedFile::remove() {
  if (unlink(name().c_str()) != 0) return error("cannot remove it", errno);
  released_ever_ = true;
  sync_folder_of(name());
  return {};
}

}  // namespace ktx
