#include "lib/runtime/gpu/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "lib/program/program.h"
#include "lib/runtime/gpu/host_buffer.h"

namespace ktx::runtime {
namespace {

constexpr uint64_t kBlobAlignment = 256;  // what the kernels read with
constexpr uint64_t kPieceBytes = 4 << 20;
constexpr int kMostThreads = 8;  // as many copy at the speed of PCIe 5

// Buffers of all threads, two each.
class Staging {
 public:
  Staging(Gpu& gpu, int threads) : gpu_(gpu), slots_(2 * threads) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  Status allocate() {
    memory_ = HostBuffer(gpu_, slots_.size() * kPieceBytes);
    for (Slot& slot : slots_) slot.mark = KTX_TRY(gpu_.new_mark());
    return {};
  }

  struct Slot {
    GpuMark mark = 0;
    bool used = false;
  };
  // A buffer of the thread's that is free again.
  Result<int> take(int thread) {
    const int slot = 2 * thread + turn_[thread];
    turn_[thread] ^= 1;
    if (slots_[slot].used) KTX_TRY(gpu_.wait(slots_[slot].mark));
    return slot;
  }
  std::byte* data(int slot) const {
    return memory_.data() + static_cast<uint64_t>(slot) * kPieceBytes;
  }
  // Queues the upload of a buffer.
  Status send(int slot, std::byte* to, uint64_t bytes) {
    slots_[slot].used = true;
    return gpu_.upload_beside(to, data(slot), bytes, slots_[slot].mark);
  }
  // All that was sent is there.
  Status finish() {
    for (const Slot& slot : slots_) {
      if (slot.used) KTX_TRY(gpu_.wait(slot.mark));
    }
    return {};
  }

 private:
  Gpu& gpu_;
  std::vector<Slot> slots_;
  int turn_[kMostThreads] = {};
  HostBuffer memory_;
};

// Bytes [begin, begin + size) of the image.
void assemble(const plan::PlanView& plan, const WeightImage& image, uint64_t begin, uint64_t size,
              std::byte* out) {
  const uint64_t end = begin + size;
  auto blob = std::partition_point(
      image.blobs.begin(), image.blobs.end(), [&](const WeightImage::Blob& candidate) {
        return candidate.offset + plan.blob_bytes(candidate.blob).size() <= begin;
      });
  uint64_t at = begin;
  for (; blob != image.blobs.end() && blob->offset < end; ++blob) {
    if (blob->offset > at) {
      std::memset(out + (at - begin), 0, blob->offset - at);
      at = blob->offset;
    }
    const auto bytes = plan.blob_bytes(blob->blob);
    const uint64_t to = std::min<uint64_t>(end, blob->offset + bytes.size());
    std::memcpy(out + (at - begin), bytes.data() + (at - blob->offset), to - at);
    at = to;
  }
  if (at < end) std::memset(out + (at - begin), 0, end - at);
}

}  // namespace

WeightImage lay_out_weights(const plan::PlanView& plan, std::string_view device) {
  WeightImage image;
  for (uint32_t i = 0; i < plan.program->blobs.size(); ++i) {
    if (plan.program->blobs[i].device != device) continue;
    image.blobs.push_back({i, image.bytes});
    image.bytes +=
        (plan.blob_bytes(i).size() + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
  }
  return image;
}

Status upload_weights(const plan::PlanView& plan, const WeightImage& image, Gpu& gpu,
                      std::byte* memory, ThreadPool& pool) {
  if (image.bytes == 0) return {};
  const auto pieces = static_cast<int64_t>((image.bytes + kPieceBytes - 1) / kPieceBytes);
  const auto threads = static_cast<int>(std::min<int64_t>({pieces, pool.threads(), kMostThreads}));
  Staging staging(gpu, threads);
  KTX_TRY(staging.allocate());
  std::mutex mutex;
  std::atomic<bool> failed = false;
  Status first;
  std::atomic<int64_t> next = 0;
  // One item a thread, which takes pieces as long as there are any.
  pool.for_each(threads, [&](int64_t item, int) {
    const auto work = [&]() -> Status {
      for (int64_t piece = next++; piece < pieces && !failed; piece = next++) {
        const uint64_t begin = static_cast<uint64_t>(piece) * kPieceBytes;
        const uint64_t size = std::min(kPieceBytes, image.bytes - begin);
        const int slot = KTX_TRY(staging.take(static_cast<int>(item)));
        assemble(plan, image, begin, size, staging.data(slot));
        KTX_TRY(staging.send(slot, memory + begin, size));
      }
      return {};
    };
    const Status status = work();
    if (status) return;
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) first = status;
  });
  const Status finished = staging.finish();  // before the buffers go
  if (failed) return first;
  return finished;
}

}  // namespace ktx::runtime
