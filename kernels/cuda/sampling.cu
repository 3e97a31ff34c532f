// argmax with its log probability (cuda_sampling.h). One block a row, one pass: each thread
// keeps its largest and a running sum of exponentials, merged in a fixed order.
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_sampling.h"
#include "kernels/cuda/mma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 1024;

struct Best {
  float value;  // -infinity: none
  int id;
  float sum;  // of exp(logit - value)
};

// NaN counts as -infinity: it neither wins nor adds.
__device__ Best merge(const Best& a, const Best& b) {
  const bool second = b.value > a.value || (b.value == a.value && b.id < a.id);
  const Best& best = second ? b : a;
  if (best.value == -INFINITY) return {best.value, best.id, 0};
  return {best.value, best.id, a.sum * expf(a.value - best.value) + b.sum * expf(b.value - best.value)};
}

__global__ void __launch_bounds__(kThreads) argmax(CudaArgmaxArgs a) {
  begin_kernel();
  __shared__ Best warp_best[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t r = blockIdx.x;
  const float* logits = a.logits + r * a.logits_stride;
  Best best{-INFINITY, INT_MAX, 0};
  for (int i = thread; i < a.vocabulary; i += kThreads) {
    const float v = logits[i];
    if (!(v > -INFINITY)) {
      best.id = min(best.id, i);  // so that some number comes out when all are -infinity
      continue;
    }
    best = best.value == -INFINITY ? Best{v, i, 1} : merge(best, {v, i, 1});
  }
  for (int o = 16; o > 0; o /= 2) {
    const Best other{__shfl_down_sync(~0u, best.value, o), __shfl_down_sync(~0u, best.id, o),
                     __shfl_down_sync(~0u, best.sum, o)};
    best = merge(best, other);
  }
  if (thread % 32 == 0) warp_best[thread / 32] = best;
  __syncthreads();
  if (thread != 0) return;
  for (int w = 1; w < kThreads / 32; ++w) best = merge(best, warp_best[w]);
  a.ids[r] = best.id;
  if (a.logprobs) a.logprobs[r] = -logf(best.sum);
}

}  // namespace

Status launch_argmax(const CudaArgmaxArgs& a, CudaStream stream) {
  return launch("argmax", argmax, dim3(static_cast<unsigned>(a.rows)), kThreads, 0, stream, a);
}

}  // namespace ktx::kernels
