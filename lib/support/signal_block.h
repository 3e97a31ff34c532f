// Blocks signals such as Ctrl-C and window changes in threads that are started during its
// lifetime, so that they reach the thread that reads the user's input.
//
//   const SignalBlock block;
//   std::thread worker(...);
//
// Faults stay with the thread that causes them: MappedFile needs SIGBUS.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ktx {

class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ktx
