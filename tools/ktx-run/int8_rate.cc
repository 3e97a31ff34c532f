#include "tools/ktx-run/int8_rate.h"

#include <algorithm>
#include <atomic>

#include "kernels/probe/int8_peak.h"
#include "lib/support/thread_pool.h"
#include "lib/support/timer.h"

namespace ktx::tools {

double measure_int8_rate(int threads, Isa isa) {
  const kernels::Int8PeakFn work = kernels::find_int8_peak(isa);
  ThreadPool pool(threads);
  std::atomic<int32_t> sink{0};
  std::atomic<int64_t> done{0};
  double best = 0;
  int64_t rounds = 1 << 14;
  // Longer until a pass takes 20 ms, so that the start of threads does not count.
  for (int pass = 0; pass < 24; ++pass) {
    done = 0;
    const Timer timer;
    pool.for_each(pool.threads(), [&](int64_t, int) {
      int32_t result = 0;
      done += work(rounds, &result);
      sink += result;
    });
    const double seconds = timer.seconds();
    best = std::max(best, static_cast<double>(done.load()) / seconds);
    if (seconds < 0.02) {
      rounds *= 2;
    } else if (pass >= 12) {
      break;
    }
  }
  return best;
}

}  // namespace ktx::tools
