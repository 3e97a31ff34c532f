// Products of many tokens by cuBLAS: weights become F16 in the workspace, a piece of rows at a
// time, activations F16 with one power of two taken out of all of them, which the library puts
// back.
//
// One power of two, not one a row, so that nothing has to go over the results again. The largest
// magnitude comes to 2^14; a row keeps eleven bits below its own largest as long as that is
// within 2^28 of all rows' largest.
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul/cublas.h"
#include "kernels/cuda/matmul/half_rows.cuh"
#include "kernels/cuda/matmul/product_launcher.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;
// A piece of the weights in F16, small enough to be written and read within L2.
constexpr int64_t kPieceBytes = int64_t{32} << 20;

// In device memory: what the kernels pass to each other and to the library.
struct Scale {
  uint32_t largest;  // the bits of the largest |x|
  float alpha, beta;
};

// The workspace: Scale, activations, a piece of weights, the library's own.
struct Places {
  int64_t x, w, library, end;
  int64_t piece_rows;  // a multiple of 16, or all
  Places(int64_t tokens, const CudaWeight& weight) {
    piece_rows = kPieceBytes / 2 / weight.cols / 16 * 16;
    if (piece_rows < 16) piece_rows = 16;
    if (piece_rows > weight.rows) piece_rows = weight.rows;
    x = workspace_aligned(sizeof(Scale));
    w = x + workspace_aligned(tokens * weight.cols * 2);
    library = w + workspace_aligned(piece_rows * weight.cols * 2);
    end = library + kCublasWorkspace;
  }
};

// Bits of non-negative floats are in the order of the floats, NaN above all.
__global__ void __launch_bounds__(kThreads)
    largest_value(const float* x, int64_t x_stride, int cols, Scale* scale) {
  begin_kernel();
  x += int64_t{blockIdx.x} * x_stride;
  uint32_t largest = 0;
  for (int k = 4 * static_cast<int>(threadIdx.x); k < cols; k += 4 * kThreads) {
    const uint4 v = *reinterpret_cast<const uint4*>(x + k);
    constexpr uint32_t kMagnitude = 0x7fffffff;
    largest = max(max(max(largest, v.x & kMagnitude), v.y & kMagnitude),
                  max(v.z & kMagnitude, v.w & kMagnitude));
  }
  __shared__ uint32_t of_warp[kThreads / 32];
  for (int o = 16; o > 0; o /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, o));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const uint32_t other : of_warp) largest = max(largest, other);
  atomicMax(&scale->largest, largest);  // in any order the same
}

__global__ void __launch_bounds__(kThreads)
    half_values(const float* x, int64_t x_stride, int cols, uint16_t* halves, Scale* scale,
                float beta) {
  begin_kernel();
  int exponent = static_cast<int>(scale->largest >> 23) - 127 - 13;
  exponent = max(-100, min(100, exponent));
  const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    scale->alpha = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    scale->beta = beta;
  }
  x += int64_t{blockIdx.x} * x_stride;
  halves += int64_t{blockIdx.x} * cols;
  for (int k = 4 * static_cast<int>(threadIdx.x); k < cols; k += 4 * kThreads) {
    const float4 v = *reinterpret_cast<const float4*>(x + k);
    *reinterpret_cast<uint2*>(halves + k) = {pack_halves(v.x * inverse, v.y * inverse),
                                             pack_halves(v.z * inverse, v.w * inverse)};
  }
}

// y = (accumulate ? y : 0) + bias, which the library then adds to.
__global__ void __launch_bounds__(kThreads) bias_rows(MarlinProduct p) {
  begin_kernel();
  const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= p.row_count) return;
  float* y = p.y + int64_t{blockIdx.y} * p.y_stride + n;
  *y = p.accumulate ? *y + p.bias[0][n] : p.bias[0][n];
}

Status launch_cublas(const ProductArgs& a, cudaStream_t stream) {
  const MarlinProduct& p = a.p;
  const Places places(a.x_rows, a.w);
  KTX_TRY(check_workspace("cublas_product", a.workspace_bytes, places.end));
  auto* scale = reinterpret_cast<Scale*>(a.workspace);
  auto* x = reinterpret_cast<uint16_t*>(a.workspace + places.x);
  auto* w = reinterpret_cast<uint16_t*>(a.workspace + places.w);
  const int cols = static_cast<int>(a.w.cols);
  const dim3 tokens(static_cast<unsigned>(a.x_rows));
  KTX_TRY(cuda_status(cudaMemsetAsync(scale, 0, sizeof(Scale), stream), "cublas_product"));
  KTX_TRY(launch("largest_value", largest_value, tokens, kThreads, 0, stream, p.x, p.x_stride, cols,
                 scale));
  KTX_TRY(launch("half_values", half_values, tokens, kThreads, 0, stream, p.x, p.x_stride, cols, x,
                 scale, p.accumulate || p.bias[0] ? 1.f : 0.f));
  if (p.bias[0]) {
    const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.w.rows, kThreads)), tokens.x);
    KTX_TRY(launch("bias_rows", bias_rows, grid, kThreads, 0, stream, p));
  }
  const int64_t strip_bytes = marlin_strip_bytes(a.w.dtype, a.w.cols);
  for (int64_t first = 0; first < a.w.rows; first += places.piece_rows) {
    CudaWeight piece = a.w;
    piece.data += first / kMarlinRows * strip_bytes;
    piece.rows = a.w.rows - first < places.piece_rows ? a.w.rows - first : places.piece_rows;
    KTX_TRY(launch_dequantize({piece, w}, stream));
    HalfGemm gemm{
        w,           x,          piece.rows,    a.w.cols,     a.x_rows,
        p.y + first, p.y_stride, &scale->alpha, &scale->beta, a.workspace + places.library};
    KTX_TRY(launch_half_gemm(gemm, stream));
  }
  return {};
}

}  // namespace

const ProductLauncher product_launchers::cublas_gemm{
    .workspace = [](int64_t x_rows, const CudaWeight& w) { return Places(x_rows, w).end; },
    .launch = launch_cublas};

}  // namespace ktx::kernels
