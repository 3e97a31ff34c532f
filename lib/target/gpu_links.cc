#include "lib/target/gpu_links.h"

#include <algorithm>

#include "lib/support/timer.h"
#include "lib/target/driver_calls.h"

namespace ktx::target {
namespace {

// The driver's C interface, as its ABI has it since CUDA 4.0 (contexts: 7.0).
using Code = int;
using Device = int;
using Context = void*;
using Stream = void*;
using Pointer = unsigned long long;  // of a GPU
struct LinkCalls {
  Code (*init)(unsigned flags) = nullptr;
  Code (*get)(Device* device, int number) = nullptr;
  Code (*can_access)(int* can, Device device, Device other) = nullptr;
  Code (*retain)(Context* context, Device device) = nullptr;
  Code (*release)(Device device) = nullptr;
  Code (*enter)(Context context) = nullptr;
  Code (*enable_access)(Context other, unsigned flags) = nullptr;
  Code (*new_stream)(Stream* stream, unsigned flags) = nullptr;
  Code (*drop_stream)(Stream stream) = nullptr;
  Code (*wait)(Stream stream) = nullptr;
  Code (*allocate)(Pointer* memory, size_t bytes) = nullptr;
  Code (*free)(Pointer memory) = nullptr;
  Code (*copy)(Pointer to, Context to_context, Pointer from, Context from_context, size_t bytes,
               Stream stream) = nullptr;
};

constexpr size_t kBytes = size_t{256} << 20;
constexpr int kLinkRounds = 4;
constexpr Code kAccessEnabledAlready = 704;

// One of two GPUs that copy: what it sends, and where it receives.
class LinkEnd {
 public:
  explicit LinkEnd(const LinkCalls& calls) : calls_(calls) {}
  ~LinkEnd() {
    if (!context_) return;
    calls_.enter(context_);
    if (stream_) calls_.drop_stream(stream_);
    for (const Pointer memory : {sent_, received_}) {
      if (memory) calls_.free(memory);
    }
    calls_.enter(nullptr);
    calls_.release(device_);
  }
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  Status open(int number) {
    KTX_TRY(check_call(calls_.get(&device_, number), "cuDeviceGet"));
    KTX_TRY(check_call(calls_.retain(&context_, device_), "cuDevicePrimaryCtxRetain"));
    KTX_TRY(check_call(calls_.enter(context_), "cuCtxSetCurrent"));
    KTX_TRY(check_call(calls_.new_stream(&stream_, 1), "cuStreamCreate"));
    KTX_TRY(check_call(calls_.allocate(&sent_, kBytes), "cuMemAlloc"));
    return check_call(calls_.allocate(&received_, kBytes), "cuMemAlloc");
  }
  Result<bool> reaches(const LinkEnd& other) const {
    int can = 0;
    KTX_TRY(check_call(calls_.can_access(&can, device_, other.device_), "cuDeviceCanAccessPeer"));
    if (can == 0) return false;
    KTX_TRY(check_call(calls_.enter(context_), "cuCtxSetCurrent"));
    const Code code = calls_.enable_access(other.context_, 0);
    if (code != kAccessEnabledAlready) KTX_TRY(check_call(code, "cuCtxEnablePeerAccess"));
    return true;
  }
  Status write_to(const LinkEnd& other) const {
    KTX_TRY(check_call(calls_.enter(context_), "cuCtxSetCurrent"));
    return check_call(
        calls_.copy(other.received_, other.context_, sent_, context_, kBytes, stream_),
        "cuMemcpyPeerAsync");
  }
  Status wait() const {
    KTX_TRY(check_call(calls_.enter(context_), "cuCtxSetCurrent"));
    return check_call(calls_.wait(stream_), "cuStreamSynchronize");
  }

 private:
  const LinkCalls& calls_;
  Device device_ = 0;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  Pointer sent_ = 0, received_ = 0;
};

// Bytes a second of the best round; the first one warms up.
Result<double> write_rate(const LinkEnd& from, const LinkEnd& to, bool back) {
  double best = 0;
  for (int round = 0; round <= kLinkRounds; ++round) {
    const Timer timer;
    KTX_TRY(from.write_to(to));
    if (back) KTX_TRY(to.write_to(from));
    KTX_TRY(from.wait());
    KTX_TRY(to.wait());
    if (round > 0) best = std::max(best, static_cast<double>(kBytes) / timer.seconds());
  }
  return best;
}

bool find_calls(void* library, LinkCalls& calls) {
  return find_call(library, "cuInit", calls.init) && find_call(library, "cuDeviceGet", calls.get) &&
         find_call(library, "cuDeviceCanAccessPeer", calls.can_access) &&
         find_call(library, "cuDevicePrimaryCtxRetain", calls.retain) &&
         find_call(library, "cuDevicePrimaryCtxRelease", calls.release) &&
         find_call(library, "cuCtxSetCurrent", calls.enter) &&
         find_call(library, "cuCtxEnablePeerAccess", calls.enable_access) &&
         find_call(library, "cuStreamCreate", calls.new_stream) &&
         find_call(library, "cuStreamDestroy_v2", calls.drop_stream) &&
         find_call(library, "cuStreamSynchronize", calls.wait) &&
         find_call(library, "cuMemAlloc_v2", calls.allocate) &&
         find_call(library, "cuMemFree_v2", calls.free) &&
         find_call(library, "cuMemcpyPeerAsync", calls.copy);
}

void keep_least(double& rate, double other) {
  rate = rate == 0 ? other : std::min(rate, other);
}

}  // namespace

Status measure_gpu_links(std::vector<GpuTarget>& gpus) {
  if (gpus.size() < 2) return {};
  void* library = open_driver();
  LinkCalls calls;
  if (!library || !find_calls(library, calls)) return Error{"the driver lacks calls for it"};
  KTX_TRY(check_call(calls.init(0), "cuInit"));
  bool all_reach = true;
  double write = 0, both = 0;
  for (size_t other = 1; other < gpus.size(); ++other) {
    LinkEnd a(calls), b(calls);
    KTX_TRY(a.open(0));
    KTX_TRY(b.open(static_cast<int>(other)));
    const bool there = KTX_TRY(a.reaches(b)), back = KTX_TRY(b.reaches(a));
    all_reach = all_reach && there && back;
    keep_least(write, KTX_TRY(write_rate(a, b, false)) / 1e9);
    keep_least(both, KTX_TRY(write_rate(a, b, true)) / 1e9);
  }
  for (GpuTarget& gpu : gpus) {
    gpu.peer_write_gbps = all_reach ? write : 0;
    gpu.peer_both_gbps = both;
  }
  return {};
}

}  // namespace ktx::target
