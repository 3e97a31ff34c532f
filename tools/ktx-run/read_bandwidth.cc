#include "tools/ktx-run/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "lib/support/timer.h"
#include "lib/target/target.h"

namespace ktx::tools {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 29;
constexpr int kPasses = 4;

// Sums 64-bit words in eight independent chains: enough loads in flight to keep
// the memory busy on every machine tried, with plain compiler-made vectors.
uint64_t read_all(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double measure_read_bandwidth(int threads) {
  const uint64_t bytes =
      std::min(kMaxBytes, target::available_memory().value_or(4 * kMaxBytes) / 4);
  const size_t words_per_thread = bytes / 8 / threads;
  if (words_per_thread < 4096) return 0;
  std::vector<std::vector<uint64_t>> parts(threads);
  std::atomic<int> waiting{0};
  std::atomic<uint64_t> sink{0};
  std::vector<double> seconds(static_cast<size_t>(kPasses) * threads);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      parts[t].assign(words_per_thread, static_cast<uint64_t>(t) + 1);  // touched where it is read
      for (int pass = 0; pass < kPasses; ++pass) {
        ++waiting;
        while (waiting < (pass + 1) * threads) std::this_thread::yield();
        const Timer timer;
        sink += read_all(parts[t].data(), words_per_thread);
        seconds[static_cast<size_t>(pass) * threads + t] = timer.seconds();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(pass) * threads;
    const double slowest = *std::max_element(begin, begin + threads);
    best = std::max(best, static_cast<double>(words_per_thread * 8 * threads) / slowest);
  }
  return best;
}

}  // namespace ktx::tools
