// match_rms and gaussian_topk (cuda_rows.h): a block takes a row, twice or three times over its
// elements, which L1 holds the second time.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/rows/cuda_rows.h"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;

// The mean of (x - from)^2.
__device__ __forceinline__ float mean_square(const float* x, int n, float from) {
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    squares = fmaf(x[i] - from, x[i] - from, squares);
  }
  return block_sum<kThreads>(squares) / static_cast<float>(n);
}

__global__ void __launch_bounds__(kThreads) match_rms(MatchRmsArgs a) {
  begin_kernel();
  const int64_t t = a.token_begin + blockIdx.x;
  const float* x = a.x + t * a.x_stride;
  const int width = static_cast<int>(a.width), like_width = static_cast<int>(a.like_width);
  const float size = mean_square(a.like + t * a.like_stride, like_width, 0);
  const float own = fmaxf(mean_square(x, width, 0), a.attrs.eps);
  const float factor = sqrtf(size) / sqrtf(own);
  float* y = a.y + t * a.y_stride;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) y[i] = x[i] * factor;
}

__global__ void __launch_bounds__(kThreads) gaussian_topk(GaussianTopKArgs a) {
  begin_kernel();
  const int64_t t = a.token_begin + blockIdx.x;
  const float* x = a.x + t * a.x_stride;
  const int width = static_cast<int>(a.width);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) sum += x[i];
  const float mean = block_sum<kThreads>(sum) / static_cast<float>(width);
  const float cut = mean + sqrtf(mean_square(x, width, mean)) * a.attrs.deviations;
  float* y = a.y + t * a.y_stride;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const float above = x[i] - cut;
    y[i] = above < 0 ? 0 : above;  // what is no number stays
  }
}

}  // namespace

Status launch_match_rms(const MatchRmsArgs& a, CudaStream stream) {
  return launch("match_rms", match_rms, dim3(static_cast<unsigned>(a.token_end - a.token_begin)),
                kThreads, 0, stream, a);
}

Status launch_gaussian_topk(const GaussianTopKArgs& a, CudaStream stream) {
  return launch("gaussian_topk", gaussian_topk,
                dim3(static_cast<unsigned>(a.token_end - a.token_begin)), kThreads, 0, stream, a);
}

}  // namespace ktx::kernels
