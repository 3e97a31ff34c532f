#include "lib/target/gpu_rates.h"

#include <algorithm>

#include "lib/support/timer.h"
#include "lib/target/driver_calls.h"

namespace ktx::target {
namespace {

// The driver's C interface, as its ABI has it since CUDA 3.2 (contexts: 7.0).
using Code = int;
using Device = int;
using Context = void*;
using Pointer = unsigned long long;  // of the GPU
struct RateCalls {
  Code (*init)(unsigned flags) = nullptr;
  Code (*get)(Device* device, int number) = nullptr;
  Code (*retain)(Context* context, Device device) = nullptr;
  Code (*release)(Device device) = nullptr;
  Code (*enter)(Context context) = nullptr;
  Code (*synchronize)() = nullptr;
  Code (*allocate)(Pointer* memory, size_t bytes) = nullptr;
  Code (*free)(Pointer memory) = nullptr;
  Code (*pin)(void** memory, size_t bytes, unsigned flags) = nullptr;
  Code (*unpin)(void* memory) = nullptr;
  Code (*upload)(Pointer to, const void* from, size_t bytes) = nullptr;
  Code (*copy)(Pointer to, Pointer from, size_t bytes) = nullptr;
};

constexpr size_t kHostBytes = size_t{256} << 20, kGpuBytes = size_t{512} << 20;
constexpr int kRounds = 5;

// The primary context of a device, current on this thread, and the buffers of the measurement.
class Buffers {
 public:
  explicit Buffers(const RateCalls& calls) : calls_(calls) {}
  ~Buffers() {
    if (host_) calls_.unpin(host_);
    for (const Pointer memory : gpu_) {
      if (memory) calls_.free(memory);
    }
    if (!context_) return;
    calls_.enter(nullptr);
    calls_.release(device_);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  Status open(int number) {
    KTX_TRY(check_call(calls_.init(0), "cuInit"));
    KTX_TRY(check_call(calls_.get(&device_, number), "cuDeviceGet"));
    KTX_TRY(check_call(calls_.retain(&context_, device_), "cuDevicePrimaryCtxRetain"));
    KTX_TRY(check_call(calls_.enter(context_), "cuCtxSetCurrent"));
    for (Pointer& memory : gpu_)
      KTX_TRY(check_call(calls_.allocate(&memory, kGpuBytes), "cuMemAlloc"));
    return check_call(calls_.pin(&host_, kHostBytes, 0), "cuMemHostAlloc");
  }
  Status upload() const {
    return check_call(calls_.upload(gpu_[0], host_, kHostBytes), "cuMemcpyHtoD");
  }
  Status copy() const {
    return check_call(calls_.copy(gpu_[1], gpu_[0], kGpuBytes), "cuMemcpyDtoD");
  }
  Status wait() const { return check_call(calls_.synchronize(), "cuCtxSynchronize"); }

 private:
  const RateCalls& calls_;
  Device device_ = 0;
  Context context_ = nullptr;
  void* host_ = nullptr;
  Pointer gpu_[2] = {};
};

// Bytes a second of the best round; the first one warms up.
template <class Work>
Result<double> best_rate(const Buffers& buffers, double bytes, const Work& work) {
  double best = 0;
  for (int round = 0; round <= kRounds; ++round) {
    KTX_TRY(buffers.wait());
    const Timer timer;
    KTX_TRY(work());
    KTX_TRY(buffers.wait());
    if (round > 0) best = std::max(best, bytes / timer.seconds());
  }
  return best;
}

}  // namespace

Status measure_gpu(int number, GpuTarget& gpu) {
  void* library = open_driver();
  RateCalls calls;
  const bool found = library && find_call(library, "cuInit", calls.init) &&
                     find_call(library, "cuDeviceGet", calls.get) &&
                     find_call(library, "cuDevicePrimaryCtxRetain", calls.retain) &&
                     find_call(library, "cuDevicePrimaryCtxRelease", calls.release) &&
                     find_call(library, "cuCtxSetCurrent", calls.enter) &&
                     find_call(library, "cuCtxSynchronize", calls.synchronize) &&
                     find_call(library, "cuMemAlloc_v2", calls.allocate) &&
                     find_call(library, "cuMemFree_v2", calls.free) &&
                     find_call(library, "cuMemHostAlloc", calls.pin) &&
                     find_call(library, "cuMemFreeHost", calls.unpin) &&
                     find_call(library, "cuMemcpyHtoD_v2", calls.upload) &&
                     find_call(library, "cuMemcpyDtoD_v2", calls.copy);
  if (!found) return Error{"libcuda.so.1 is missing, or too old"};
  Buffers buffers(calls);
  KTX_TRY(buffers.open(number));
  gpu.pcie_gbps = KTX_TRY(best_rate(buffers, kHostBytes, [&] { return buffers.upload(); })) / 1e9;
  // Each byte is read and written.
  gpu.read_gbps = 2 * KTX_TRY(best_rate(buffers, kGpuBytes, [&] { return buffers.copy(); })) / 1e9;
  return {};
}

}  // namespace ktx::target
