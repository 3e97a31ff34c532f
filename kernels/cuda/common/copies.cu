// launch_copies (cuda_copy.h): a row of blocks per copy, 16 bytes a thread where both sides
// are aligned for it. Roofline: PCIe, whose round trip is most of the time.
#include "kernels/cuda/common/cuda_copy.h"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlockBytes = kThreads * 16;

__global__ void __launch_bounds__(kThreads) copies(CudaCopies a) {
  begin_kernel();
  const CudaCopies::Copy copy = a.copies[blockIdx.y];
  const int64_t at = blockIdx.x * kBlockBytes + threadIdx.x * 16;
  if (at >= copy.bytes) return;
  const std::byte* from = copy.from + at;
  std::byte* to = copy.to + at;
  const bool aligned =
      ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) & 15) == 0;
  if (aligned && at + 16 <= copy.bytes) {
    *reinterpret_cast<uint4*>(to) = __ldcv(reinterpret_cast<const uint4*>(from));
    return;
  }
  for (int i = 0; i < 4 && at + 4 * i < copy.bytes; ++i) {
    reinterpret_cast<uint32_t*>(to)[i] = __ldcv(reinterpret_cast<const uint32_t*>(from) + i);
  }
}

}  // namespace

Status launch_copies(const CudaCopies& a, CudaStream stream) {
  int64_t most = 0;
  for (int i = 0; i < a.count; ++i) most = a.copies[i].bytes > most ? a.copies[i].bytes : most;
  const dim3 grid(static_cast<unsigned>(ceil_div(most, kBlockBytes)),
                  static_cast<unsigned>(a.count));
  return launch("copies", copies, grid, kThreads, 0, stream, a);
}

}  // namespace ktx::kernels
