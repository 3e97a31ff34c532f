// Steps of many tokens that go together on Hopper: products of one normalised x share its rows in
// F16 (half_rows.cuh), those of one format a launch (marlin_gemm_wgmma.cuh). Arguments are those of
// the skinny GEMMs, of any number of tokens; takes() says whether this GPU and the formats do.
#pragma once

#include "kernels/cuda/skinny_gemm/cuda_fused_skinny_gemm.h"

namespace ktx::kernels {

bool gemm_products_take(const CudaSkinnyProductsArgs& args);
Status launch_gemm_products(const CudaSkinnyProductsArgs& args, CudaStream stream);

bool gemm_gate_up_takes(const CudaSkinnyGateUpArgs& args);
Status launch_gemm_gate_up(const CudaSkinnyGateUpArgs& args, CudaStream stream);

// Workspace of either launch, enough for this number of tokens and for fewer.
int64_t gemm_workspace(int64_t tokens, int64_t cols);

}  // namespace ktx::kernels
