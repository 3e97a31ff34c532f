#include "tools/ktx-run/read_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <system_error>
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
// third. A machine that does not say how large its cache is may have any.
constexpr uint64_t kLeastBytes = uint64_t{256} << 20, kUnknownBytes = uint64_t{1} << 30,
                   kMostBytes = uint64_t{4} << 30;
constexpr int kPasses = 4;

uint64_t bytes_to_read() {
  const uint64_t cache = target::last_level_cache_bytes();
  const uint64_t least = cache == 0 ? kUnknownBytes : kLeastBytes;
  return std::min(std::clamp(4 * cache, least, kMostBytes),
                  target::available_memory().value_or(4 * least) / 4);
}

// Memory for all threads in equal parts: as much as is wanted, or half of it, and so on, where a
// limit of the process allows no more (ulimit -v). With less than twice the last cache, the rate
// would be the cache's: none then.
class Parts {
 public:
  explicit Parts(int threads) {
    const uint64_t least = std::max<uint64_t>(2 * target::last_level_cache_bytes(), 1 << 20);
    for (uint64_t bytes = bytes_to_read(); bytes >= least; bytes /= 2) {
      part_bytes_ = bytes / static_cast<uint64_t>(threads) / kPageBytes * kPageBytes;
      mapped_bytes_ = part_bytes_ * static_cast<uint64_t>(threads);
      if (mapped_bytes_ == 0) break;
      void* const memory =
          mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) continue;
      memory_ = static_cast<std::byte*>(memory);
      return;
    }
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    if (memory_) munmap(memory_, mapped_bytes_);
  }
  bool none() const { return memory_ == nullptr; }
  std::span<std::byte> of(int thread) const {
    return {memory_ + static_cast<size_t>(thread) * part_bytes_, part_bytes_};
  }

 private:
  static constexpr uint64_t kPageBytes = 4096;
  std::byte* memory_ = nullptr;
  uint64_t part_bytes_ = 0, mapped_bytes_ = 0;
};

}  // namespace

double measure_read_bandwidth(int threads) {
  const Parts parts(threads);
  if (parts.none()) return 0;
  const kernels::ReadStreamFn read = kernels::find_read_stream(detect_isa());
  std::atomic<int> waiting{0}, team{threads};
  std::atomic<uint64_t> sink{0};
  std::vector<double> seconds(static_cast<size_t>(kPasses) * threads);
  std::vector<ThreadPlace> places = target::place_threads(threads).threads;
  places.resize(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  const auto work = [&](int t) {
    const CpuPin pin(places[static_cast<size_t>(t)].cpu);
    const std::span<std::byte> part = parts.of(t);
    std::memset(part.data(), t + 1, part.size());  // touched where it is read
    for (int pass = 0; pass < kPasses; ++pass) {
      ++waiting;
      while (waiting < (pass + 1) * team) std::this_thread::yield();
      const Timer timer;
      sink += read(part.data(), part.size());
      seconds[static_cast<size_t>(pass) * threads + t] = timer.seconds();
    }
  };
  try {
    for (int t = 0; t < threads; ++t) workers.emplace_back(work, t);
  } catch (const std::system_error&) {  // no memory for its stack: the others read without it
    team = static_cast<int>(workers.size());
  }
  for (std::thread& worker : workers) worker.join();
  double best = 0;
  for (int pass = 0; pass < kPasses && !workers.empty(); ++pass) {
    const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(pass) * threads;
    const double slowest = *std::max_element(begin, begin + team);
    best = std::max(best, static_cast<double>(parts.of(0).size()) * team / slowest);
  }
  return best;
}

}  // namespace ktx::tools
