// Records of activations (skinny_x.h): a warp takes 256 columns of a token.
//
// Roofline: bytes, 6 a value; at these sizes the time is that of one chain of loads.
#include "kernels/cuda/skinny_gemm/skinny_x.h"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/gemv/marlin_gemv_x.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 4;

template <bool kNorm>
__global__ void __launch_bounds__(32 * kWarps) skinny_x(BatchXArgs a) {
  let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int token = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int record = static_cast<int>(blockIdx.x), k = record * 256 + 8 * lane;
  float4 w[2] = {}, v[2] = {};
  if constexpr (kNorm) {  // a weight: nothing ahead writes it
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (k + 4 * i < a.cols) w[i] = *reinterpret_cast<const float4*>(a.norm + k + 4 * i);
    }
  }
  wait_for_inputs();
  if (token >= a.tokens) return;
  const int columns = batch_columns(a.tokens);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float* from = a.x + token * a.x_stride + k + 4 * i;
    if (k + 4 * i < a.cols) v[i] = *reinterpret_cast<const float4*>(from);
  }
  if constexpr (kNorm) {
    const float squares = warp_sum(squares_of(v[1], squares_of(v[0], 0)));
    float* to = reinterpret_cast<float*>(a.out + batch_squares_offset(a.tokens, a.cols));
    if (lane == 0) to[record * kBatchTokens + token] = squares;
    v[0] = times(v[0], w[0]), v[1] = times(v[1], w[1]);
  }
  const float largest = warp_largest(fmaxf(largest_of(v[0]), largest_of(v[1])));
  int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 9;
  exponent = max(-100, min(100, exponent));
  const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
  const uint4 b = {pack_halves(v[0].x * inverse, v[0].y * inverse),
                   pack_halves(v[0].z * inverse, v[0].w * inverse),
                   pack_halves(v[1].x * inverse, v[1].y * inverse),
                   pack_halves(v[1].z * inverse, v[1].w * inverse)};
  std::byte* out = a.out + int64_t{record} * batch_record_bytes(columns);
  const int n = token / 8, g = token % 8, chunk = lane / 4, t = lane % 4;
  reinterpret_cast<uint4*>(out)[(chunk * columns + n) * 32 + 4 * g + t] = b;
  float sum = 0;  // of at most 32 * 1024: exact enough as two halves
#pragma unroll
  for (const uint32_t pair : {b.x, b.y, b.z, b.w}) {
    const float2 two = __half22float2(as_half2(pair));
    sum += two.x + two.y;
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  const half high = __float2half_rn(sum);
  if (t == 0) {
    half* to = reinterpret_cast<half*>(out + columns * 4096 + (n * 32 + 4 * g + chunk / 2) * 8);
    to[chunk % 2] = high;
    to[2 + chunk % 2] = __float2half_rn(sum - __half2float(high));
  }
  if (lane == 0) {
    reinterpret_cast<float*>(out + columns * 4352)[token] =
        __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
  }
}

}  // namespace

Status launch_batch_x(const BatchXArgs& a, CudaStream stream) {
  if (a.tokens < 1 || a.tokens > kBatchTokens) {
    return Error{"activations of a batch: " + std::to_string(a.tokens) +
                 " tokens; 1 to 32 are taken"};
  }
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.cols, 256)),
                  static_cast<unsigned>(ceil_div<int64_t>(a.tokens, kWarps)));
  return launch("activations of a batch", a.norm ? skinny_x<true> : skinny_x<false>, grid,
                32 * kWarps, 0, stream, a);
}

}  // namespace ktx::kernels
