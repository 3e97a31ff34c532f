#include "lib/support/output_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "lib/support/write_failure.h"

namespace ktx {
namespace {

constexpr int kMostLinks = 40;  // as many as Linux follows

Error refuse(const OutputPlace& place, std::string_view why) {
  return Error{fmt::format("{}: {}", describe(place), why)};
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// The folder without links, or "" and errno.
std::string real_folder(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : "";
}

bool is_under(std::string_view folder, std::string_view root) {
  return folder == root ||
         (folder.starts_with(root) && folder.substr(root.size()).starts_with('/'));
}

bool is_the_systems(std::string_view folder) {
  if (is_under(folder, "/dev")) return !is_under(folder, "/dev/shm");
  return is_under(folder, "/proc") || is_under(folder, "/sys");
}

// The number N of /proc/self/fd/N, or -1.
int open_file_of_this_process(const std::string& folder, const std::string& name) {
  if (folder != fmt::format("/proc/{}/fd", getpid()) &&
      folder != fmt::format("/proc/{}/task/{}/fd", getpid(), gettid())) {
    return -1;
  }
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

// Terminals, /dev/null, /dev/zero and /dev/full: nothing else is meant where a text goes.
bool is_harmless_device(const struct stat& info) {
  const unsigned major = gnu_dev_major(info.st_rdev), minor = gnu_dev_minor(info.st_rdev);
  const bool memory = major == 1 && (minor == 3 || minor == 5 || minor == 7);
  const bool terminal = major == 4 || major == 5 || (major >= 136 && major <= 143);
  return memory || terminal;
}

// Follows the links of the last part of the path; those before it are realpath's. Stops at
// the open file of a process: what /proc says of it is no path to go on with.
Status follow(OutputPlace& place) {
  for (int links = 0; links < kMostLinks; ++links) {
    const std::string folder = real_folder(folder_of(place.path));
    if (folder.empty()) {
      const int error = errno;
      return refuse(place, error == ENOENT ? fmt::format("there is no folder '{}'; make it first",
                                                         folder_of(place.path))
                                           : "cannot write there: " + write_failure(error));
    }
    const std::string name = name_of(place.path);
    if (name.empty() || name == "." || name == "..")
      return refuse(place, "it is a folder; name a file in it");
    place.path = (folder == "/" ? "" : folder) + "/" + name;
    struct stat info = {};
    if (lstat(place.path.c_str(), &info) != 0) {
      if (errno == ENOENT) return {};
      return refuse(place, "cannot write there: " + write_failure(errno));
    }
    if (!S_ISLNK(info.st_mode)) return {};
    place.open_file = open_file_of_this_process(folder, name);
    if (is_under(folder, "/proc")) return {};
    char target[PATH_MAX];
    const ssize_t size = readlink(place.path.c_str(), target, sizeof target);
    if (size <= 0 || size == sizeof target) {
      return refuse(place,
                    "cannot read the link: " + write_failure(size < 0 ? errno : ENAMETOOLONG));
    }
    const std::string_view text(target, static_cast<size_t>(size));
    place.path = text.starts_with('/') ? std::string(text) : folder + "/" + std::string(text);
  }
  return refuse(place, write_failure(ELOOP));
}

// What is there, when it is not nothing.
Status look_at(OutputPlace& place, const struct stat& info) {
  if (S_ISDIR(info.st_mode)) return refuse(place, "it is a folder; name a file in it");
  if (S_ISSOCK(info.st_mode)) return refuse(place, "it is a socket; name a file to write");
  if (S_ISBLK(info.st_mode)) return refuse(place, "it is a device; name a file to write");
  if (S_ISCHR(info.st_mode) && !is_harmless_device(info)) {
    return refuse(place, "it is a device; name a file to write");
  }
  const bool regular = S_ISREG(info.st_mode);
  place.kind = regular && place.open_file < 0 ? OutputPlace::Kind::File : OutputPlace::Kind::Stream;
  return {};
}

}  // namespace

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

std::string describe(const OutputPlace& place) {
  struct stat info = {};
  const bool link = lstat(place.given.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
  return link && place.path != place.given
             ? fmt::format("{} (a link to {})", place.given, place.path)
             : place.given;
}

int open_output(const OutputPlace& place, int flags) {
  if (place.kind != OutputPlace::Kind::Stream) {
    return open(place.path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
  }
  if (place.open_file >= 0) return fcntl(place.open_file, F_DUPFD_CLOEXEC, 3);
  const int fd = open(place.path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // the other end of our terminal or pipe set O_NONBLOCK
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

Result<OutputPlace> find_output(const std::string& path) {
  OutputPlace place;
  place.given = place.path = path;
  if (path.empty()) return Error{"the name of the output is empty; name a file to write"};
  if (path == "-") return refuse(place, "no output goes there; name a file, or ./- for this name");
  // The system's own view first: it knows loops, and links that it does not let us follow.
  struct stat info = {};
  const bool there = stat(path.c_str(), &info) == 0;
  if (!there && errno != ENOENT) {
    return refuse(place, "cannot write there: " + write_failure(errno));
  }
  KTX_TRY(follow(place));
  const bool still_there = stat(place.path.c_str(), &info) == 0;
  if (still_there) KTX_TRY(look_at(place, info));
  const bool renamed_onto = place.kind != OutputPlace::Kind::Stream;
  const std::string folder = folder_of(place.path);
  if (renamed_onto && is_the_systems(folder)) {
    return refuse(place, fmt::format("{} belongs to the system; name a file elsewhere", folder));
  }
  if (place.kind == OutputPlace::Kind::File &&
      faccessat(AT_FDCWD, place.path.c_str(), W_OK, AT_EACCESS) != 0) {
    return refuse(place, "the file there may not be written: " + write_failure(errno));
  }
  return place;
}

}  // namespace ktx
