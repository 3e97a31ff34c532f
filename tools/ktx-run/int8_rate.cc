#include "tools/ktx-run/int8_rate.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/probe/int8_peak.h"
#include "lib/support/thread_pool.h"
#include "lib/support/timer.h"
#include "lib/target/thread_places.h"

namespace ktx::tools {

double measure_int8_rate(int threads, Isa isa) {
  const kernels::Int8PeakFn work = kernels::find_int8_peak(isa);
  // Held on their cores: new threads share some for a second or more on a virtual machine
  // (four read 0.94, 1.31, 1.64 and 1.84 TOP/s in turn).
  const std::vector<ThreadPlace> places = target::place_threads(threads).threads;
  ThreadPool pool = places.empty() ? ThreadPool(threads) : ThreadPool(places);
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
