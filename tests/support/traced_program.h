// Runs a program and stops it before each system call that changes a file, so that a test can look
// at the disk there, or end it as a kill would.
//
//   run_traced({ktx_compile(), ...}, [&](int call) { return call < 7; });   // killed at the 8th
//
// Calls of all threads count, in the order in which they come. Traced::log has them all.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

namespace ktx::testing {

struct TracedCall {
  uint64_t number;  // SYS_...
  uint64_t args[6];
  std::string file;  // of a call whose first argument is an open file
};

struct Traced {
  int calls = 0;  // that it came to
  std::vector<TracedCall> log;
  bool ended = false;  // by itself
  int status = -1;     // of its exit, where it ended
};

// `at_call` gets the number of each call, from 0 on, before it is made; false kills the program.
inline Traced run_traced(const std::vector<std::string>& args,
                         const std::function<bool(int)>& at_call) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> argv;
    for (const std::string& arg : args) argv.push_back(strdup(arg.c_str()));
    argv.push_back(nullptr);
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);  // it does not work under ptrace
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Traced traced;
  int state = 0;
  if (waitpid(child, &state, 0) != child || !WIFSTOPPED(state)) return traced;
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, kOptions);
  ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  constexpr uint64_t kCalls[] = {SYS_pwrite64, SYS_fallocate, SYS_fsync, SYS_ftruncate,
                                 SYS_rename,   SYS_renameat2, SYS_unlink};
  bool killed = false;
  for (;;) {
    const pid_t thread = waitpid(-1, &state, __WALL);
    if (thread < 0 && errno == EINTR) continue;
    if (thread < 0) return traced;  // all are gone
    if (WIFEXITED(state) || WIFSIGNALED(state)) {
      if (thread != child) continue;
      traced.ended = WIFEXITED(state) && !killed;
      traced.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
      continue;
    }
    long signal = 0;
    if (WIFSTOPPED(state) && WSTOPSIG(state) == (SIGTRAP | 0x80)) {
      __ptrace_syscall_info info = {};
      ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
      const bool counts = info.op == PTRACE_SYSCALL_INFO_ENTRY &&
                          std::ranges::find(kCalls, info.entry.nr) != std::end(kCalls);
      if (counts && !killed) {
        TracedCall& call = traced.log.emplace_back();
        call.number = info.entry.nr;
        std::ranges::copy(info.entry.args, call.args);
        std::error_code no_file;
        const auto link = fmt::format("/proc/{}/fd/{}", child, call.args[0]);
        call.file = std::filesystem::read_symlink(link, no_file).filename().string();
      }
      if (counts && !killed && !at_call(traced.calls++)) {
        killed = true;
        kill(child, SIGKILL);
        continue;
      }
    } else if (WIFSTOPPED(state) && WSTOPSIG(state) != SIGTRAP && WSTOPSIG(state) != SIGSTOP) {
      signal = WSTOPSIG(state);
    }
    if (!killed) ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
  }
}

}  // namespace ktx::testing
