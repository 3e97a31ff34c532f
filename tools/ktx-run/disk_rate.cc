#include "tools/ktx-run/disk_rate.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <semaphore>
#include <vector>

#include "lib/runtime/experts/direct_reader.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::tools {
namespace {

constexpr uint64_t kPiece = uint64_t{1} << 20, kHugePage = 2 * kPiece,
                   kLeastFile = uint64_t{64} << 20;
constexpr int kAtOnce = 32;
constexpr double kSeconds = 2;

std::vector<uint64_t> shuffled_offsets(uint64_t pieces) {
  std::vector<uint64_t> offsets(pieces);
  for (uint64_t i = 0; i < pieces; ++i) offsets[i] = i * kPiece;
  std::ranges::shuffle(offsets, std::mt19937_64(std::random_device()()));
  return offsets;
}

}  // namespace

Result<double> measure_disk_rate(const std::string& path) {
  std::error_code missing;
  const uint64_t bytes = std::filesystem::file_size(path, missing);
  if (missing) return Error{fmt::format("{}: {}", printable(path), missing.message())};
  if (bytes < kLeastFile) {
    return Error{fmt::format("{}: has {}, too little to measure a disk; name a file of at least {}",
                             printable(path), human_bytes(bytes), human_bytes(kLeastFile))};
  }
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kHugePage, kAtOnce * kPiece)), std::free);
  if (!memory) return Error{"not enough memory to measure a disk"};
  // As experts' slots are, so that a read pins a few pages instead of hundreds.
  madvise(memory.get(), kAtOnce * kPiece, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, kAtOnce * kPiece);
  std::counting_semaphore<kAtOnce> free(kAtOnce);
  std::atomic<int> failure = 0;
  std::atomic<uint32_t> taken[kAtOnce] = {};  // 1: a read goes into it
  const auto done = [&](uint32_t ticket, int error) {
    if (error != 0) failure = error;
    taken[ticket] = 0;
    free.release();
  };
  const auto reader = KTX_TRY(runtime::open_direct_reader(path, done));
  const std::vector<uint64_t> offsets = shuffled_offsets(bytes / kPiece);
  const Timer timer;
  uint64_t read = 0;
  for (const uint64_t offset : offsets) {
    if (timer.seconds() > kSeconds || failure != 0) break;
    free.acquire();
    uint32_t ticket = 0;
    while (taken[ticket] != 0) ticket = (ticket + 1) % kAtOnce;
    taken[ticket] = 1;
    reader->read({{{offset, kPiece, kPiece, memory.get() + ticket * kPiece, ticket}}});
    read += kPiece;
  }
  for (int i = 0; i < kAtOnce; ++i) free.acquire();
  if (failure == runtime::kFileEnds) return Error{printable(path) + ": it became shorter"};
  if (failure != 0) return Error{fmt::format("{}: {}", printable(path), std::strerror(failure))};
  return static_cast<double>(read) / timer.seconds();
}

}  // namespace ktx::tools
