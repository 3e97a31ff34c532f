// Runs a program at a terminal of its own (a pty), as a person does.
//
//   PtyProgram chat({ktx_run(), "chat", plan}, {"LANG=C"});
//   ASSERT_TRUE(chat.shows("> "));
//   chat.send("你好\r");
//   chat.send("\x04");
//   EXPECT_EQ(chat.status(), 0) << chat.output();
//
// The environment is the given one with PATH, and nothing else.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::testing {

class PtyProgram {
 public:
  // Only for what hangs: a busy machine may take long, and a test that passes does not wait.
  static constexpr int kSeconds = 900;

  explicit PtyProgram(const std::vector<std::string>& args,
                      const std::vector<std::string>& environment = {}, int columns = 80) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    signal(SIGHUP, SIG_DFL);  // the tests may have been started without
    std::vector<char*> argv, envp;
    for (const std::string& arg : args) argv.push_back(strdup(arg.c_str()));
    for (const std::string& item : environment) envp.push_back(strdup(item.c_str()));
    envp.push_back(strdup("PATH=/usr/bin:/bin"));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  ~PtyProgram() {
    if (!status_) kill(child_, SIGKILL);
    status();
    close(terminal_);
  }
  PtyProgram(const PtyProgram&) = delete;
  PtyProgram& operator=(const PtyProgram&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      // A terminal takes little at once, and the program's echo must be read meanwhile.
      struct pollfd wait = {terminal_, POLLIN | POLLOUT, 0};
      if (poll(&wait, 1, kSeconds * 1000) <= 0) return;
      if (wait.revents & POLLIN) read_some(0);
      if (!(wait.revents & POLLOUT)) {
        if (wait.revents & (POLLHUP | POLLERR)) return;
        continue;
      }
      const ssize_t count = write(terminal_, bytes.data(), std::min<size_t>(bytes.size(), 512));
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  void send_signal(int number) { kill(child_, number); }

  // Waits until the program has shown `text` behind what an earlier call found.
  bool shows(std::string_view text, double seconds = kSeconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      const size_t at = output_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (std::chrono::steady_clock::now() >= end) return false;
      if (!read_some(20) && ended_) {
        return output_.find(text, seen_) != std::string::npos;
      }
    }
  }
  // Waits until it has shown something more.
  bool shows_anything() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
    while (output_.size() == seen_ && !ended_ && std::chrono::steady_clock::now() < end) {
      read_some(20);
    }
    return output_.size() > seen_;
  }
  // Reads what comes for so long.
  void let_pass(double seconds) { (void)shows("\x01 never shown \x02", seconds); }

  // Waits for the end: exit status; 128 + signal when a signal ended it; -1 when it goes on.
  int status() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
    while (!status_ && std::chrono::steady_clock::now() < end) {
      read_some(20);
      int wait_status = 0;
      if (waitpid(child_, &wait_status, WNOHANG) != child_) continue;
      status_ = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
      while (read_some(0)) {
      }
    }
    return status_.value_or(-1);
  }

  const std::string& output() const { return output_; }
  // What came since the last shows().
  std::string rest() const { return output_.substr(seen_); }
  // Whether the terminal is in the mode in which a shell reads lines.
  bool is_cooked() const {
    termios mode = {};
    return tcgetattr(terminal_, &mode) == 0 && (mode.c_lflag & ICANON) && (mode.c_lflag & ECHO);
  }

 private:
  bool read_some(int timeout_ms) {
    struct pollfd wait = {terminal_, POLLIN, 0};
    if (ended_ || poll(&wait, 1, timeout_ms) <= 0) return false;
    char bytes[4096];
    const ssize_t count = read(terminal_, bytes, sizeof bytes);
    if (count <= 0) {
      ended_ = errno != EINTR;  // EIO: the program's side is closed
      return false;
    }
    output_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::optional<int> status_;
  std::string output_;
  size_t seen_ = 0;
  bool ended_ = false;
};

}  // namespace ktx::testing
