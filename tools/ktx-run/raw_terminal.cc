#include "tools/ktx-run/raw_terminal.h"

#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

namespace ktx::tools {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";
constexpr std::string_view kNoStyle = "\x1b[0m\r\n";

// For the signal handler; written by RawTerminal alone, before and after the mode changes.
volatile sig_atomic_t g_raw = 0;
volatile sig_atomic_t g_styled = -1;
int g_in = -1, g_out = -1;
termios g_before;

void on_end(int number) {
  if (g_raw) {
    tcsetattr(g_in, TCSANOW, &g_before);
    (void)!::write(g_out, kPasteOff.data(), kPasteOff.size());
  }
  if (g_styled >= 0) (void)!::write(g_styled, kNoStyle.data(), kNoStyle.size());
  ::signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void note_style(int fd) {
  g_styled = fd;
}

void write_terminal(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      struct pollfd wait = {fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

void guard_terminal() {
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // nohup
    struct sigaction action = {};
    action.sa_handler = on_end;
    sigaction(number, &action, nullptr);
  }
}

RawTerminal::RawTerminal(int in, int out) : in_(in), out_(out) {
  enter();
}

RawTerminal::~RawTerminal() {
  leave();
}

void RawTerminal::enter() {
  if (tcgetattr(in_, &g_before) != 0) return;
  g_in = in_;
  g_out = out_;
  termios raw = g_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN | ISIG);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL | INLCR | IGNCR | ISTRIP | BRKINT);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  g_raw = 1;
  // Not TCSAFLUSH: what was typed ahead is kept.
  tcsetattr(in_, TCSADRAIN, &raw);
  write_terminal(out_, kPasteOn);
}

void RawTerminal::leave() {
  if (!g_raw) return;
  write_terminal(out_, kPasteOff);
  tcsetattr(in_, TCSADRAIN, &g_before);
  g_raw = 0;
}

void RawTerminal::suspend() {
  leave();
  raise(SIGTSTP);
  enter();
}

}  // namespace ktx::tools
