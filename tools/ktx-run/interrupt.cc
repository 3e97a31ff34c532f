#include "tools/ktx-run/interrupt.h"

#include <signal.h>

namespace ktx::tools {
namespace {

volatile sig_atomic_t g_interrupted = 0;

void on_interrupt(int signal) {
  if (g_interrupted) {
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  g_interrupted = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: reading a line must return
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() {
  return g_interrupted != 0;
}

bool take_interrupt() {
  const bool was = g_interrupted != 0;
  g_interrupted = 0;
  return was;
}

}  // namespace ktx::tools
