// Steps of 2 to 96 tokens that go together: products of one normalised x share its records
// (skinny_x.h) and one launch for every 32. Each is the composition of launchers of this folder,
// and rounds as that does but for the order of two factors.
//
//   launch_skinny_products   y_i (+)= w_i . norm(x) + bias_i      rms_norm, up to four matmuls
//   launch_skinny_gate_up    y = glu(gate . norm(x), up . norm(x))
//
// The norm is left out where `norm` is null. takes() says whether this GPU and the formats do.
#pragma once

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/gpu/gpu_limits.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

constexpr int64_t kCudaSkinnyTokens = 96;

struct CudaSkinnyX {
  const float* x = nullptr;  // [tokens, cols], 16-byte aligned, stride a multiple of 4
  int64_t stride = 0;
  int64_t tokens = 0;           // 2 to 96
  const float* norm = nullptr;  // [cols], 16-byte aligned, or null
  float eps = 0;
};

struct CudaSkinnyOutput {
  CudaWeight w;
  float* y = nullptr;  // [tokens, rows]; overlaps no input, and no other output
  int64_t y_stride = 0;
  const float* bias = nullptr;
  bool accumulate = false;
};

struct CudaSkinnyProductsArgs {
  CudaSkinnyX x;
  CudaSkinnyOutput outputs[kLaunchProducts];
  int count = 0;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
bool skinny_products_take(const CudaSkinnyProductsArgs& args);
Status launch_skinny_products(const CudaSkinnyProductsArgs& args, CudaStream stream);

struct CudaSkinnyGateUpArgs {
  CudaSkinnyX x;
  CudaWeight gate, up;
  float* y = nullptr;  // [tokens, rows]
  int64_t y_stride = 0;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
  GluAttrs glu;
};
bool skinny_gate_up_takes(const CudaSkinnyGateUpArgs& args);
Status launch_skinny_gate_up(const CudaSkinnyGateUpArgs& args, CudaStream stream);

// Workspace of either launch, enough for this number of tokens and for fewer.
int64_t skinny_workspace(int64_t tokens, int64_t cols);

}  // namespace ktx::kernels
