// Routing and the products of a mixture-of-experts layer on the GPU, without a word to
// the host: who goes where is known to the device alone.
//
//   router         the five steps of RouterAttrs, one warp a token; padding gets ids -1
//   group_experts  order[T * k], offsets[E + 1]: the pairs of expert e are
//                  order[offsets[e], offsets[e + 1]), rising; pairs with id -1 in none,
//                  nor pairs of experts that are on another device or of ranks that the step
//                  leaves out (expert_places.h)
//   experts_gate_up  h[pair] = glu(gate_e . x[pair / k] + gate_bias_e,
//                                  up_e . x[pair / k] + up_bias_e)
//   experts_down     y[t] (+)= sum over its experts in rising number of
//                              weights[pair] * (down_e . h[pair] + bias_e)
//
// pair = token * top_k + choice. Matrix e of a weight is expert e's. A token without
// experts gets y = 0 (or y, when accumulating).
#pragma once

#include <optional>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/gpu/gpu_kernels.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

inline constexpr int kCudaMaxExperts = 1024;
inline constexpr int kCudaMaxTopK = 32;

struct CudaRouterArgs {
  const float* logits = nullptr;  // [T, experts]
  int64_t logits_stride = 0;
  const float* bias = nullptr;     // [experts] or null
  const float* factors = nullptr;  // [experts] or null
  // [table_rows, top_k] in [0, experts), or null: the choices by token id (RouterAttrs).
  const int32_t* table = nullptr;
  int64_t table_rows = 0;
  const int32_t* token_ids = nullptr;  // [T], with a table
  const int32_t* position = nullptr;   // [T] or null: negative is padding
  RouterAttrs attrs;                   // experts <= kCudaMaxExperts, top_k <= kCudaMaxTopK
  int64_t tokens = 0;
  int32_t* ids = nullptr;    // [T, top_k], dense
  float* weights = nullptr;  // [T, top_k], dense
  // For launches with experts (cuda_fused_gemv.h), some of them on another device: [experts]
  // (expert_places.h), and how many are here. ids are then matrix numbers, or -1 with weight 0.
  const float* places = nullptr;
  int32_t here = 0;
};
Status launch_router(const CudaRouterArgs& args, CudaStream stream);

struct CudaGroupExpertsArgs {
  const int32_t* ids = nullptr;  // [T, top_k], dense; in [-1, routed)
  int64_t tokens = 0;
  GroupExpertsAttrs attrs;
  const float* places = nullptr;  // [routed] (expert_places.h), or null: all are here
  int32_t routed = 0;             // of places
  int32_t end = INT32_MAX;        // pairs of matrices from here on are of no expert here either
  uint64_t* counts = nullptr;     // [experts] to which the pairs of each are added, or null
  int32_t* order = nullptr;       // [T * top_k] pair numbers
  int32_t* offsets = nullptr;     // [experts + 1]
};
Status launch_group_experts(const CudaGroupExpertsArgs& args, CudaStream stream);

struct CudaExpertsGateUpArgs {
  CudaWeight gate, up;               // dtypes may differ
  const float* gate_bias = nullptr;  // [experts, rows of gate], or none
  const float* up_bias = nullptr;
  ExpertsAttrs attrs;
  const int32_t* order = nullptr;
  const int32_t* offsets = nullptr;
  const float* x = nullptr;  // [T, cols]
  int64_t x_stride = 0;
  int64_t tokens = 0;
  float* h = nullptr;               // one row of gate.rows per pair
  int64_t h_stride = 0;             // between pairs
  std::optional<GpuKernel> kernel;  // none: the first choice on this GPU
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_experts_gate_up_workspace(const CudaExpertsGateUpArgs& args);
Status launch_experts_gate_up(const CudaExpertsGateUpArgs& args, CudaStream stream);

struct CudaExpertsDownArgs {
  CudaWeight down;
  const float* bias = nullptr;  // [experts, rows of down], or none
  ExpertsAttrs attrs;
  const int32_t* order = nullptr;
  const int32_t* offsets = nullptr;
  const float* weights = nullptr;  // [T * top_k]
  const float* h = nullptr;        // one row of down.cols per pair
  int64_t h_stride = 0;
  int64_t tokens = 0;
  float* y = nullptr;  // [T, down.rows]
  int64_t y_stride = 0;
  std::optional<GpuKernel> kernel;  // none: the first choice on this GPU
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_experts_down_workspace(const CudaExpertsDownArgs& args);
Status launch_experts_down(const CudaExpertsDownArgs& args, CudaStream stream);

}  // namespace ktx::kernels
