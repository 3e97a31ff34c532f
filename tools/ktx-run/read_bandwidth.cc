#include "tools/ktx-run/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/probe/read_stream.h"
#include "lib/support/cpu_pin.h"
#include "lib/support/timer.h"
#include "lib/target/target.h"
#include "lib/target/thread_places.h"

namespace ktx::tools {
namespace {

// Caches that do not simply drop what is oldest keep a part of what is read round after
// round: of four times their size at most a quarter, of 1 GiB on a machine with 300 MiB a
// third.
constexpr uint64_t kLeastBytes = uint64_t{1} << 30, kMostBytes = uint64_t{4} << 30;
constexpr int kPasses = 4;

uint64_t bytes_to_read() {
  const uint64_t wanted = 4 * std::min(target::last_level_cache_bytes(), kMostBytes / 4);
  return std::min(std::max(wanted, kLeastBytes),
                  target::available_memory().value_or(4 * kLeastBytes) / 4);
}

}  // namespace

double measure_read_bandwidth(int threads) {
  const size_t part_bytes = bytes_to_read() / threads / 512 * 512;
  if (part_bytes < 32768) return 0;
  const kernels::ReadStreamFn read = kernels::find_read_stream(detect_isa());
  std::vector<std::vector<std::byte>> parts(threads);
  std::atomic<int> waiting{0};
  std::atomic<uint64_t> sink{0};
  std::vector<double> seconds(static_cast<size_t>(kPasses) * threads);
  std::vector<ThreadPlace> places = target::place_threads(threads).threads;
  places.resize(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const CpuPin pin(places[static_cast<size_t>(t)].cpu);
      parts[t].assign(part_bytes, static_cast<std::byte>(t + 1));  // touched where it is read
      for (int pass = 0; pass < kPasses; ++pass) {
        ++waiting;
        while (waiting < (pass + 1) * threads) std::this_thread::yield();
        const Timer timer;
        sink += read(parts[t].data(), part_bytes);
        seconds[static_cast<size_t>(pass) * threads + t] = timer.seconds();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(pass) * threads;
    const double slowest = *std::max_element(begin, begin + threads);
    best = std::max(best, static_cast<double>(part_bytes * threads) / slowest);
  }
  return best;
}

}  // namespace ktx::tools
