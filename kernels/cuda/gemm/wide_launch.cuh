// What launches of marlin_gemm_wgmma.cuh share, by one step or by several: rows in F16, and the
// choice of its template by format.
#pragma once

#include "kernels/cuda/gemm/wide_parts.cuh"
#include "kernels/cuda/matmul/half_rows.cuh"

namespace ktx::kernels {

// Takes x_rows rows of p.x (normed, where `norm` has a weight) to F16 in `workspace`
// (half_rows_bytes(x_rows, p.cols)), where p then has them in this order.
Status take_half_rows(MarlinProduct& p, int64_t x_rows, HalfOrder order, const RowNorm& norm,
                      std::byte* workspace, cudaStream_t stream);

// p with its rows in F16; an error where the program has no products of Hopper.
Status launch_marlin_gemm_wgmma(DType dtype, const MarlinProduct& p, const WideParts& parts,
                                cudaStream_t stream);

}  // namespace ktx::kernels
