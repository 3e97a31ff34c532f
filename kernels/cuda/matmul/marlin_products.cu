// Which kernel template serves a marlin product.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/gemm/wide_launch.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {

template <DType kType>
Status launch_few_type(const MarlinProduct& p, cudaStream_t stream);
template <DType kType>
Status launch_many_type(const MarlinProduct& p, cudaStream_t stream);
template <DType kType>
Status launch_wide_type(const MarlinProduct& p, const WideParts& parts, cudaStream_t stream);

Status launch_marlin_few_gemm(DType dtype, const MarlinProduct& p, cudaStream_t stream) {
  return for_marlin_type<Status>(dtype, Error{"not a format of marlin weights"},
                                 [&]<DType kType>() { return launch_few_type<kType>(p, stream); });
}

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

Status launch_marlin_gemm_mma(DType dtype, const MarlinProduct& product, int64_t x_rows,
                              std::byte* workspace, bool wide, cudaStream_t stream) {
  if (!marlin_gemm_mma_runs(dtype) || (wide && !marlin_gemm_wgmma_runs())) {
    return Error{"this GPU does not have the GEMM of marlin weights"};
  }
  MarlinProduct p = product;
  const HalfOrder order = !wide       ? HalfOrder::Columns
                          : p.offsets ? HalfOrder::Fragments  // rows are gathered
                                      : HalfOrder::Panels;
  KTX_TRY(take_half_rows(p, x_rows, order, {}, workspace, stream));
  if (wide) return launch_marlin_gemm_wgmma(dtype, p, {}, stream);
  return for_marlin_type<Status>(dtype, Error{"not a format of marlin weights"},
                                 [&]<DType kType>() { return launch_many_type<kType>(p, stream); });
}

bool marlin_gemm_wgmma_runs() {
#ifdef KTX_CUDA_WGMMA
  return compute_capability() == 90;
#else
  return false;
#endif
}

bool marlin_gemm_mma_runs(DType dtype) {
  return compute_capability() >= 80 && marlin_gemm_fits(dtype, shared_memory_limit());
}

}  // namespace ktx::kernels
