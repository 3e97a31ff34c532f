// Which kernel template serves a marlin product.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/gemm/wide_launch.cuh"
#include "kernels/cuda/matmul/product_launcher.cuh"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {

template <DType kType>
Status launch_few_type(const MarlinProduct& p, cudaStream_t stream);
template <DType kType>
Status launch_many_type(const MarlinProduct& p, cudaStream_t stream);
template <DType kType>
Status launch_wide_type(const MarlinProduct& p, const WideParts& parts, cudaStream_t stream);

Status take_half_rows(MarlinProduct& p, int64_t x_rows, HalfOrder order, const RowNorm& norm,
                      std::byte* workspace, cudaStream_t stream) {
  p.half_cols = half_rows_cols(p.cols);
  CudaHalfRowsArgs rows;
  rows.x = p.x;
  rows.x_stride = p.x_stride;
  rows.tokens = x_rows;
  rows.cols = p.cols;
  rows.xh = reinterpret_cast<uint16_t*>(workspace);
  rows.scale = reinterpret_cast<float*>(workspace + half_values_bytes(x_rows, p.cols));
  KTX_TRY(launch_half_rows_padded(rows, p.half_cols, order, norm, stream));
  if (order == HalfOrder::Panels) p.panel_rows = padded_rows(x_rows);
  p.xh = rows.xh;
  p.x_scale = rows.scale;
  return {};
}

Status launch_marlin_gemm_wgmma(DType dtype, const MarlinProduct& p, const WideParts& parts,
                                cudaStream_t stream) {
#ifdef KTX_CUDA_WGMMA
  return for_marlin_type<Status>(
      dtype, Error{"not a format of marlin weights"},
      [&]<DType kType>() { return launch_wide_type<kType>(p, parts, stream); });
#else
  (void)dtype, (void)p, (void)parts, (void)stream;
  return Error{"this program has no GEMM for Hopper"};
#endif
}

bool marlin_gemm_wgmma_runs() {
#ifdef KTX_CUDA_WGMMA
  return compute_capability() == 90;
#else
  return false;
#endif
}

namespace {

const Error kOtherFormat{"not a format of marlin weights"};

// Any number of tokens, 8 or 16 at a time.
Status launch_few(const ProductArgs& a, cudaStream_t stream) {
  return for_marlin_type<Status>(
      a.w.dtype, kOtherFormat, [&]<DType kType>() { return launch_few_type<kType>(a.p, stream); });
}

// The product with its rows in F16, where this GPU has the kernel.
Result<MarlinProduct> half_product(const ProductArgs& a, HalfOrder order, bool has_wgmma,
                                   cudaStream_t stream) {
  const bool runs =
      has_wgmma && compute_capability() >= 80 && marlin_gemm_fits(a.w.dtype, shared_memory_limit());
  if (!runs) return Error{"this GPU does not have the GEMM of marlin weights"};
  MarlinProduct p = a.p;
  KTX_TRY(take_half_rows(p, a.x_rows, order, {}, a.workspace, stream));
  return p;
}

Status launch_mma(const ProductArgs& a, cudaStream_t stream) {
  const MarlinProduct p = KTX_TRY(half_product(a, HalfOrder::Columns, true, stream));
  return for_marlin_type<Status>(a.w.dtype, kOtherFormat,
                                 [&]<DType kType>() { return launch_many_type<kType>(p, stream); });
}

// Rows of experts are gathered.
Status launch_wgmma(const ProductArgs& a, cudaStream_t stream) {
  const HalfOrder order = a.p.offsets ? HalfOrder::Fragments : HalfOrder::Panels;
  const MarlinProduct p = KTX_TRY(half_product(a, order, marlin_gemm_wgmma_runs(), stream));
  return launch_marlin_gemm_wgmma(a.w.dtype, p, {}, stream);
}

int64_t half_workspace(int64_t x_rows, const CudaWeight& w) {
  return half_rows_bytes(x_rows, w.cols);
}

}  // namespace

const ProductLauncher product_launchers::marlin_few_gemm{
    .takes = [](const ProductArgs& a) { return !a.transposed; }, .launch = launch_few};
const ProductLauncher product_launchers::marlin_gemm_mma{.workspace = half_workspace,
                                                         .launch = launch_mma};
const ProductLauncher product_launchers::marlin_gemm_wgmma{.workspace = half_workspace,
                                                           .launch = launch_wgmma};

}  // namespace ktx::kernels
