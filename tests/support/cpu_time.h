// Seconds of processor time of this process: for tests that bound what hostile input may
// cost. Other programs on the machine do not count, as they would in wall time.
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
