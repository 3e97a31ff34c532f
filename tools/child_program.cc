#include "tools/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lib/support/env.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOutput = 1 << 20;

bool is_program(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// Blocks what is to be passed on and the end of the child, for sigwaitinfo().
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    sigaddset(&held_, SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction now = {};
      sigaction(number, nullptr, &now);
      if (now.sa_handler != SIG_IGN) sigaddset(&held_, number);  // nohup, jobs of a shell
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
    // Where a parent has set it to be ignored, no end would be seen.
    signal(SIGCHLD, SIG_DFL);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  const sigset_t* before() const { return &before_; }
  int wait() const { return sigwaitinfo(&held_, nullptr); }

 private:
  sigset_t held_, before_;
};

// Closes it at the end.
struct OpenFile {
  int fd = -1;
  ~OpenFile() { reset(); }
  void reset() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

struct Spawn {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Spawn() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

// What else a child is started with.
struct Start {
  const sigset_t* blocked = nullptr;
  int output = -1;  // its stdout
  int errors = -1;  // its stderr; -1: this program's
  std::vector<std::string> environment = {};
};

Result<pid_t> start(const ChildProgram& child, Start how) {
  Spawn spawn;
  posix_spawn_file_actions_addopen(&spawn.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.files, how.output, STDOUT_FILENO);
  if (how.errors >= 0) {
    posix_spawn_file_actions_adddup2(&spawn.files, how.errors, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&spawn.files, STDERR_FILENO + 1);
  }
  if (child.open_file >= 0) {  // onto itself: no longer closed by exec
    posix_spawn_file_actions_adddup2(&spawn.files, child.open_file, child.open_file);
  }
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&spawn.attributes, &usual);
  posix_spawnattr_setsigmask(&spawn.attributes, how.blocked);
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::vector<std::string> words = {child.path};
  words.insert(words.end(), child.arguments.begin(), child.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> values;
  for (std::string& value : how.environment) values.push_back(value.data());
  for (char** each = environ; *each != nullptr; ++each) values.push_back(*each);
  values.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, child.path.c_str(), &spawn.files, &spawn.attributes,
                                argv.data(), values.data());
  if (error == 0) return pid;
  return Error{fmt::format("{}: cannot start: {}", child.path, std::strerror(error))};
}

// What was written into a file of memory.
std::string text_of(int fd) {
  std::string out(kMostOutput, '\0');
  const ssize_t got = pread(fd, out.data(), out.size(), 0);
  out.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return out;
}

}  // namespace

Result<std::string> find_program(const std::string& name) {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path();
  const std::string beside = (own / name).string();
  if (is_program(beside)) return beside;
  const std::string folders = env("PATH").value_or("");
  for (const std::string_view folder : split(folders, ':')) {
    if (folder.empty() || folder.front() != '/') continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    if (is_program(path)) return path;
  }
  return Error{fmt::format("{} is needed for this, and is neither in {} nor in a folder of PATH",
                           name, own.string())};
}

Result<ChildEnd> run_child(const ChildProgram& child) {
  const HeldSignals held;
  // A file rather than a pipe: nothing is read while signals are waited for.
  OpenFile output;
  if (child.keep_output) output.fd = memfd_create("ktx output", MFD_CLOEXEC);
  if (child.keep_output && output.fd < 0) {
    return Error{fmt::format("{}: cannot start: {}", child.path, std::strerror(errno))};
  }
  const pid_t pid =
      KTX_TRY(start(child, {held.before(), child.keep_output ? output.fd : STDERR_FILENO}));
  ChildEnd end;
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) {
      return Error{fmt::format("{}: cannot wait for it: {}", child.path, std::strerror(errno))};
    }
    const int number = held.wait();
    if (number <= 0 || number == SIGCHLD) continue;
    end.signal = number;
    kill(pid, number);
  }
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (child.keep_output) end.output = text_of(output.fd);
  if (end.signal == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) end.signal = SIGINT;
  return end;
}

namespace {

constexpr double kSecondsToEnd = 5;  // after SIGTERM; then SIGKILL
constexpr size_t kLongestLine = 64 << 10;

// Gives away the whole lines.
void take_lines(std::string& text, const std::function<void(std::string_view)>& line) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    line(std::string_view(text).substr(begin, end - begin));
  }
  text.erase(0, begin);
  if (text.size() > kLongestLine) text.clear();
}

}  // namespace

Result<ChildEnd> watch_child(const ChildProgram& child, std::vector<std::string> environment,
                             const std::function<bool()>& stop,
                             const std::function<void(std::string_view)>& line) {
  std::array<int, 2> ends = {-1, -1};
  const bool piped = pipe2(ends.data(), O_CLOEXEC) == 0;
  OpenFile read_end{ends[0]}, write_end{ends[1]};
  const OpenFile output{memfd_create("ktx output", MFD_CLOEXEC)};
  if (!piped || output.fd < 0) {
    return Error{fmt::format("{}: cannot start: {}", child.path, std::strerror(errno))};
  }
  sigset_t none;
  sigemptyset(&none);
  const pid_t pid = KTX_TRY(start(child, {&none, output.fd, write_end.fd, std::move(environment)}));
  write_end.reset();
  std::string text;
  std::array<char, 4096> bytes;
  std::optional<Timer> ending;
  for (bool open = true; open;) {
    if (!ending && stop()) {
      kill(pid, SIGTERM);
      ending.emplace();
    } else if (ending && ending->seconds() > kSecondsToEnd) {
      kill(pid, SIGKILL);
    }
    pollfd readable = {read_end.fd, POLLIN, 0};
    if (poll(&readable, 1, 100) <= 0) continue;
    const ssize_t got = ::read(read_end.fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    open = got > 0;
    if (open) text.append(bytes.data(), static_cast<size_t>(got));
    take_lines(text, line);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno == EINTR) continue;
    return Error{fmt::format("{}: cannot wait for it: {}", child.path, std::strerror(errno))};
  }
  ChildEnd end;
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.output = text_of(output.fd);
  return end;
}

std::optional<std::vector<std::string>> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) return std::nullopt;
  if (inside) words.push_back(std::move(word));
  return words;
}

}  // namespace ktx::tools
