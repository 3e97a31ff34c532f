// CPU time in seconds, of this process or of another one, for tests that bound the cost of hostile
// input. Unlike wall time it does not count other programs.
//
//   const double begin = cpu_seconds();
//   parse(hostile);
//   EXPECT_LT(cpu_seconds() - begin, 2);
#pragma once

#include <sys/types.h>

#include <ctime>

namespace ktx::testing {

inline double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The CPU time of all threads of a running process; 0 if there is none.
inline double cpu_seconds_of(pid_t pid) {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace ktx::testing
