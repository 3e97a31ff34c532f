#include "lib/support/piped_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ktx {
namespace {

bool is_standard_input(const std::string& path) {
  return path == "-" || path == "/dev/stdin";
}

struct OpenInput {
  explicit OpenInput(const std::string& path)
      : own(!is_standard_input(path)),
        fd(own ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO) {}
  ~OpenInput() {
    if (own && fd >= 0) ::close(fd);
  }
  OpenInput(const OpenInput&) = delete;
  OpenInput& operator=(const OpenInput&) = delete;

  bool own;
  int fd;
};

}  // namespace

std::string piped_text_name(const std::string& path) {
  return is_standard_input(path) ? "standard input" : path;
}

Result<PipedText> read_piped_text(const std::string& path, size_t limit_bytes) {
  const auto failed = [&](const char* what) {
    return Error{fmt::format("{}: {}: {}", piped_text_name(path), what, std::strerror(errno))};
  };
  const OpenInput input(path);
  if (input.fd < 0) return failed("cannot open");
  struct stat info = {};
  if (fstat(input.fd, &info) != 0) return failed("cannot read");
  PipedText result;
  result.streamed = !S_ISREG(info.st_mode);
  std::string bytes(1 << 16, '\0');
  while (true) {
    const ssize_t count = ::read(input.fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {  // a pipe that its writer made non-blocking
      struct pollfd wait = {input.fd, POLLIN, 0};
      ::poll(&wait, 1, -1);
      continue;
    }
    if (count < 0) return failed("cannot read");
    if (count == 0) return result;
    if (result.text.size() + static_cast<size_t>(count) > limit_bytes) {
      return Error{fmt::format("{}: the text has more than the {} bytes allowed here",
                               piped_text_name(path), limit_bytes)};
    }
    result.text.append(bytes, 0, static_cast<size_t>(count));
  }
}

}  // namespace ktx
