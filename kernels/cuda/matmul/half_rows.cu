// half_rows: what stands before a product in F16, a norm with it.
//
// One block a row; two passes over it, the second from L1. Roofline: bytes.
#include "kernels/cuda/matmul/half_rows.cuh"

#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float4 weighted(float4 v, const float* norm, int64_t k) {
  if (!norm) return v;
  const float4 w = *reinterpret_cast<const float4*>(norm + k);
  return {v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
}

template <HalfOrder kOrder>
__global__ void __launch_bounds__(kThreads)
    half_rows(const float* x, int64_t x_stride, int cols, uint16_t* xh, int64_t half_cols,
              int64_t rows, float* scales, RowNorm norm) {
  begin_kernel();
  __shared__ float warp_largest[kThreads / 32], warp_squares[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  x += row * x_stride;
  if constexpr (kOrder != HalfOrder::Panels) xh += row * half_cols;
  float largest = 0, squares = 0;
  for (int k = 4 * thread; k < cols; k += 4 * kThreads) {
    float4 v = *reinterpret_cast<const float4*>(x + k);
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    v = weighted(v, norm.weight, k);
    largest = fmaxf(fmaxf(fmaxf(largest, fabsf(v.x)), fmaxf(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
  }
  largest = warp_max(largest);
  squares = warp_sum(squares);
  if (thread % 32 == 0) warp_largest[thread / 32] = largest, warp_squares[thread / 32] = squares;
  __syncthreads();
  squares = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    largest = fmaxf(largest, warp_largest[w]);
    squares += warp_squares[w];
  }
  int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 9;
  exponent = max(-100, min(100, exponent));
  const float scale = __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
  const float inverse = 1 / scale;
  // The factor of a norm is left to the products, as the power of two is.
  const float factor = norm.weight ? 1 / sqrtf(squares / static_cast<float>(cols) + norm.eps) : 1;
  if (thread == 0) scales[row] = scale * factor;
  for (int64_t k = 4 * thread; k < half_cols; k += 4 * kThreads) {
    float4 v{0, 0, 0, 0};
    if (k < cols) v = weighted(*reinterpret_cast<const float4*>(x + k), norm.weight, k);
    const uint2 halves = {pack_halves(v.x * inverse, v.y * inverse),
                          pack_halves(v.z * inverse, v.w * inverse)};
    if constexpr (kOrder == HalfOrder::Columns) {
      *reinterpret_cast<uint2*>(xh + k) = halves;
    } else {
      const int at = static_cast<int>(k % 64) / 32 * 32 + static_cast<int>(k % 8) / 4 * 16 +
                     static_cast<int>(k % 32) / 8 * 2;
      if constexpr (kOrder == HalfOrder::Fragments) {
        *reinterpret_cast<uint32_t*>(xh + k / 64 * 64 + at) = halves.x;
        *reinterpret_cast<uint32_t*>(xh + k / 64 * 64 + at + 8) = halves.y;
      } else {
        const int swap = static_cast<int>(row % 8) * 8;
        uint16_t* to = xh + (k / 64 * rows + row) * 64;
        *reinterpret_cast<uint32_t*>(to + (at ^ swap)) = halves.x;
        *reinterpret_cast<uint32_t*>(to + ((at + 8) ^ swap)) = halves.y;
      }
    }
  }
}

}  // namespace

Status launch_half_rows_padded(const CudaHalfRowsArgs& a, int64_t half_cols, HalfOrder order,
                               const RowNorm& norm, cudaStream_t stream) {
  const auto kernel = order == HalfOrder::Columns     ? half_rows<HalfOrder::Columns>
                      : order == HalfOrder::Fragments ? half_rows<HalfOrder::Fragments>
                                                      : half_rows<HalfOrder::Panels>;
  return launch("half_rows", kernel, dim3(static_cast<unsigned>(a.tokens)), kThreads, 0, stream,
                a.x, a.x_stride, static_cast<int>(a.cols), a.xh, half_cols, padded_rows(a.tokens),
                a.scale, norm);
}

Status launch_half_rows(const CudaHalfRowsArgs& a, CudaStream stream) {
  return launch_half_rows_padded(a, a.cols, HalfOrder::Columns, {}, stream);
}

}  // namespace ktx::kernels
