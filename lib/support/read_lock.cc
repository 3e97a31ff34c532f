#include "lib/support/read_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace ktx {
namespace {

constexpr int kTries = 50;
constexpr std::chrono::milliseconds kBetweenTries{20};

}  // namespace

Result<ReadLock> ReadLock::take(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
  ReadLock lock(fd);
  for (int tries = 1; flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++tries) {
    if (tries == kTries) {
      return Error{
          fmt::format("{}: another program moves this file into a plan now; wait for it", path)};
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  return lock;
}

ReadLock::~ReadLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ktx
