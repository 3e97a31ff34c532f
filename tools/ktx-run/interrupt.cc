#include "tools/ktx-run/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace ktx::tools {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

volatile sig_atomic_t g_second_ends = 0;

void on_interrupt(int signal) {
  if (g_interrupted.exchange(true) && g_second_ends) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
}

// No more than a signal handler may do.
void on_bus_error(int signal) {
  constexpr std::string_view kText =
      "ktx-run: error: a page of memory cannot be read (SIGBUS): a fault of a disk or of memory; "
      "the system's log may tell more\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void explain_bus_errors() {
  ::signal(SIGBUS, on_bus_error);
}

void catch_interrupts(SecondInterrupt second) {
  g_second_ends = second == SecondInterrupt::Ends;
  struct sigaction before = {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: reading a line must return
  sigaction(SIGINT, &action, nullptr);
}

const std::atomic<bool>& interrupt_flag() {
  return g_interrupted;
}

bool interrupted() {
  return g_interrupted;
}

bool take_interrupt() {
  return g_interrupted.exchange(false);
}

int end_interrupted() {
  std::fflush(nullptr);
  ::signal(SIGINT, SIG_DFL);
  raise(SIGINT);
  return 130;
}

}  // namespace ktx::tools
