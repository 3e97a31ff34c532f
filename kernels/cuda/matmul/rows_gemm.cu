// Products of float weights with float activations, in F32: routers, whose last bits choose the
// experts, and models kept in F16 or BF16.
//
// plain: a block takes kRows rows and kTokens tokens; its threads share the columns, four at a
// time, and add up in a fixed order. Roofline: bytes of the weights. Many tokens: rows_tiles.cuh.
#include "kernels/cuda/matmul/rows_gemm.cuh"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul/product_launcher.cuh"
#include "kernels/cuda/matmul/rows_tiles.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 128;

__host__ __device__ bool by_four(const PlainProduct& p) {
  return p.w.cols % 4 == 0 && p.x_stride % 4 == 0 && p.x_head % 4 == 0 &&
         reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
}

template <class T, int kRows, int kTokens>
__global__ void __launch_bounds__(kThreads) plain(PlainProduct p) {
  begin_kernel();
  __shared__ float partial[kThreads / 32][kRows * kTokens];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t head = blockIdx.z, first_row = int64_t{blockIdx.x} * kRows,
                first_token = int64_t{blockIdx.y} * kTokens;
  const T* w = reinterpret_cast<const T*>(p.w.data + head * p.w.matrix_bytes);
  const float* x = p.x + head * p.x_head;
  float sum[kRows][kTokens] = {};
  // Rows and tokens past the end repeat the last: read twice, not written.
  const T* row[kRows];
  const float* token[kTokens];
  for (int r = 0; r < kRows; ++r) {
    row[r] = w + (p.row_begin + min(first_row + r, p.row_count - 1)) * p.w.cols;
  }
  for (int t = 0; t < kTokens; ++t) {
    token[t] = x + min(first_token + t, p.tokens - 1) * p.x_stride;
  }
  if (by_four(p)) {
#pragma unroll 2
    for (int64_t k = 4 * thread; k < p.w.cols; k += 4 * kThreads) {
      FourOf<T> weights[kRows];
      for (int r = 0; r < kRows; ++r) weights[r] = *reinterpret_cast<const FourOf<T>*>(row[r] + k);
      for (int t = 0; t < kTokens; ++t) {
        const float4 v = *reinterpret_cast<const float4*>(token[t] + k);
        for (int r = 0; r < kRows; ++r) {
          sum[r][t] = fmaf(v.x, to_float(weights[r].v[0]), sum[r][t]);
          sum[r][t] = fmaf(v.y, to_float(weights[r].v[1]), sum[r][t]);
          sum[r][t] = fmaf(v.z, to_float(weights[r].v[2]), sum[r][t]);
          sum[r][t] = fmaf(v.w, to_float(weights[r].v[3]), sum[r][t]);
        }
      }
    }
  } else {
    for (int64_t k = thread; k < p.w.cols; k += kThreads) {
      for (int r = 0; r < kRows; ++r) {
        const float weight = to_float(row[r][k]);
        for (int t = 0; t < kTokens; ++t) sum[r][t] = fmaf(token[t][k], weight, sum[r][t]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      const float v = warp_sum(sum[r][t]);
      if (thread % 32 == 0) partial[thread / 32][r * kTokens + t] = v;
    }
  }
  __syncthreads();
  if (thread >= kRows * kTokens) return;
  const int64_t n = first_row + thread / kTokens, t = first_token + thread % kTokens;
  if (n >= p.row_count || t >= p.tokens) return;
  float v = 0;
  for (int i = 0; i < kThreads / 32; ++i) v += partial[i][thread];
  if (p.bias) v += p.bias[n];
  float* y = p.y + t * p.y_stride + head * p.y_head + n;
  *y = p.accumulate ? *y + v : v;
}

// A block a row and token. The factor of the norm is applied to the sum; each block writes its
// share of the normed row. The weights are asked for before the kernel ahead has ended.
__global__ void __launch_bounds__(kThreads)
    plain_normed(PlainProduct p, const float* norm, float eps, float* normed,
                 int64_t normed_stride) {
  constexpr int kHeld = 4;  // of a thread's pieces of the weights
  __shared__ float partial[kThreads / 32][2];
  const int thread = static_cast<int>(threadIdx.x);
  const auto cols = static_cast<int>(p.w.cols);
  const float* w = reinterpret_cast<const float*>(p.w.data) + int64_t{blockIdx.x} * cols;
  const auto four = [](const float* from) { return *reinterpret_cast<const float4*>(from); };
  p.x += blockIdx.y * p.x_stride;
  p.y += blockIdx.y * p.y_stride;
  normed += blockIdx.y * normed_stride;
  let_next_kernel_start();
  float4 held[kHeld], held_norm[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = 4 * (thread + i * kThreads);
    held[i] = held_norm[i] = float4{0, 0, 0, 0};
    if (k < cols) held[i] = four(w + k), held_norm[i] = four(norm + k);
  }
  wait_for_inputs();
  float sum = 0, squares = 0;
  const auto add = [&](const float4& v, const float4& factor, const float4& weight) {
    squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
    sum = fmaf(v.x * factor.x, weight.x, sum);
    sum = fmaf(v.y * factor.y, weight.y, sum);
    sum = fmaf(v.z * factor.z, weight.z, sum);
    sum = fmaf(v.w * factor.w, weight.w, sum);
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int k = 4 * (thread + i * kThreads);
    if (k < cols) add(four(p.x + k), held_norm[i], held[i]);
  }
  for (int k = 4 * (thread + kHeld * kThreads); k < cols; k += 4 * kThreads) {
    add(four(p.x + k), four(norm + k), four(w + k));
  }
  sum = warp_sum(sum);
  squares = warp_sum(squares);
  if (thread % 32 == 0) partial[thread / 32][0] = sum, partial[thread / 32][1] = squares;
  __syncthreads();
  sum = squares = 0;
  for (int i = 0; i < kThreads / 32; ++i) sum += partial[i][0], squares += partial[i][1];
  const float scale = 1 / sqrtf(squares / static_cast<float>(cols) + eps);
  if (thread == 0) p.y[blockIdx.x] = sum * scale + (p.bias ? p.bias[blockIdx.x] : 0);
  const int share = ceil_div(cols, static_cast<int>(gridDim.x));
  const int begin = static_cast<int>(blockIdx.x) * share, end = min(cols, begin + share);
  for (int k = begin + thread; k < end; k += kThreads) normed[k] = p.x[k] * scale * norm[k];
}

// A thread a column, one token, rows in rising order.
template <class T>
__global__ void __launch_bounds__(kThreads) plain_transposed(PlainProduct p) {
  begin_kernel();
  const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= p.w.cols) return;
  const int64_t head = blockIdx.z, t = blockIdx.y;
  const T* w =
      reinterpret_cast<const T*>(p.w.data + head * p.w.matrix_bytes) + p.row_begin * p.w.cols + n;
  const float* x = p.x + t * p.x_stride + head * p.x_head;
  float sum = 0;
#pragma unroll 8
  for (int64_t k = 0; k < p.row_count; ++k) sum = fmaf(x[k], to_float(w[k * p.w.cols]), sum);
  p.y[t * p.y_stride + head * p.y_head + n] = sum;
}

// Outputs from which tiles are quicker (H200: 128 rows and 256 tokens are even with plain). Without
// clusters a tile has all columns, and few tiles leave SMs idle.
bool tiles_pay(const PlainProduct& p) {
  const int sm = compute_capability();
  return by_four(p) && sm >= 80 && p.row_count * p.tokens > (sm >= 90 ? 1 << 15 : 1 << 18);
}

// Ranges of columns, at least two steps each, as long as every SM has two blocks at most.
template <class T>
Status launch_tiles(const PlainProduct& p, cudaStream_t stream) {
  const dim3 tiles(static_cast<unsigned>(ceil_div<int64_t>(p.row_count, kTileLines)),
                   static_cast<unsigned>(ceil_div<int64_t>(p.tokens, kTileLines)),
                   static_cast<unsigned>(p.heads));
  const auto blocks = static_cast<int>(tiles.x * tiles.y * tiles.z);
  int splits = 1;
  while (compute_capability() >= 90 && splits < kMostSplits && splits * blocks <= sm_count() &&
         p.w.cols >= int64_t{4} * splits * kTileStep) {
    splits *= 2;
  }
  return launch_clusters("plain product", plain_tiles<T>, dim3(tiles.x * splits, tiles.y, tiles.z),
                         splits, kTileThreads, 0, stream, p, splits);
}

template <class R, class Fn>
R for_float_type(DType dtype, R otherwise, Fn&& fn) {
  switch (dtype) {
    case DType::F32:
      return fn(float{});
    case DType::F16:
      return fn(half{});
    case DType::BF16:
      return fn(__nv_bfloat16{});
    default:
      return otherwise;
  }
}
const Error kNotFloat{"products with weights in rows take F32, F16 and BF16 only"};

Status launch_rows(const ProductArgs& a, cudaStream_t stream) {
  PlainProduct p;
  p.w = a.w;
  p.row_begin = a.p.row_begin;
  p.row_count = a.p.row_count;
  p.heads = a.p.matrices;
  p.x = a.p.x;
  p.x_stride = a.p.x_stride;
  p.x_head = a.p.x_head;
  p.tokens = a.p.tokens;
  p.y = a.p.y;
  p.y_stride = a.p.y_stride;
  p.y_head = a.p.y_head;
  p.bias = a.p.bias[0];
  p.accumulate = a.p.accumulate;
  return a.transposed ? launch_plain_transposed(p, stream) : launch_plain(p, stream);
}

}  // namespace

const ProductLauncher product_launchers::rows_gemm{.layout = Layout::Rows, .launch = launch_rows};

Status launch_plain(const PlainProduct& p, CudaStream stream) {
  return for_float_type<Status>(p.w.dtype, kNotFloat, [&](auto zero) -> Status {
    using T = decltype(zero);
    const auto heads = static_cast<unsigned>(p.heads);
    const auto rows = static_cast<unsigned>(p.row_count);
    if (p.tokens == 1) {
      return launch("plain product", plain<T, 1, 1>, dim3(rows, 1, heads), kThreads, 0, stream, p);
    }
    if (tiles_pay(p)) return launch_tiles<T>(p, stream);
    const dim3 grid(ceil_div(rows, 4u), static_cast<unsigned>(ceil_div<int64_t>(p.tokens, 8)),
                    heads);
    return launch("plain product", plain<T, 4, 8>, grid, kThreads, 0, stream, p);
  });
}

Status launch_plain_normed(const PlainProduct& p, const float* norm, float eps, float* normed,
                           int64_t normed_stride, CudaStream stream) {
  const dim3 grid(static_cast<unsigned>(p.row_count), static_cast<unsigned>(p.tokens));
  return launch("norm and plain product", plain_normed, grid, kThreads, 0, stream, p, norm, eps,
                normed, normed_stride);
}

Status launch_plain_transposed(const PlainProduct& p, CudaStream stream) {
  return for_float_type<Status>(p.w.dtype, kNotFloat, [&](auto zero) -> Status {
    using T = decltype(zero);
    const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(p.w.cols, kThreads)),
                    static_cast<unsigned>(p.tokens), static_cast<unsigned>(p.heads));
    return launch("transposed plain product", plain_transposed<T>, grid, kThreads, 0, stream, p);
  });
}

}  // namespace ktx::kernels
