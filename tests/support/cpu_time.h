// CPU time of this process in seconds, for tests that bound the cost of hostile input. Unlike
// wall time it does not count other programs.
//
//   const double begin = cpu_seconds();
//   parse(hostile);
//   EXPECT_LT(cpu_seconds() - begin, 2);
#pragma once

#include <ctime>

namespace ktx::testing {

inline double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace ktx::testing
