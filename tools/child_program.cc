#include "tools/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lib/support/env.h"
#include "lib/support/strings.h"

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
  ~OpenFile() {
    if (fd >= 0) close(fd);
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

Result<pid_t> start(const ChildProgram& child, const HeldSignals& held, int output) {
  Spawn spawn;
  posix_spawn_file_actions_addopen(&spawn.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.files, output, STDOUT_FILENO);
  if (child.open_file >= 0) {  // onto itself: no longer closed by exec
    posix_spawn_file_actions_adddup2(&spawn.files, child.open_file, child.open_file);
  }
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&spawn.attributes, &usual);
  posix_spawnattr_setsigmask(&spawn.attributes, held.before());
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::vector<std::string> words = {child.path};
  words.insert(words.end(), child.arguments.begin(), child.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, child.path.c_str(), &spawn.files, &spawn.attributes, argv.data(), environ);
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
  const pid_t pid = KTX_TRY(start(child, held, child.keep_output ? output.fd : STDERR_FILENO));
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
