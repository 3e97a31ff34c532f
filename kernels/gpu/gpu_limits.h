// Limits of GPU kernels that the launchers check and the choice of a kernel keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/dtype.h"
#include "lib/ops/step_attrs.h"

namespace ktx::kernels {

inline constexpr int64_t kSkinnyRows = 96;     // of skinny GEMMs at most, three of 32 rows
inline constexpr int kLaunchProducts = 4;      // products that one launch takes
inline constexpr int32_t kFusedExperts = 256;  // of experts_gemv
inline constexpr int32_t kFusedTopK = 32;

// Whether `shared_memory` bytes hold `x_rows` rows of activations beside the ring of a GEMV, with
// the most strips that a block has and one tile a warp.
bool marlin_gemv_fits(DType dtype, int64_t cols, int64_t x_rows, int64_t shared_memory);

// Whether they hold what a GEMM of marlin weights stages.
bool marlin_gemm_fits(DType dtype, int64_t shared_memory);

// Whether a GPU computes the gated delta rule of heads of `head_dim`, whose matrix is in registers.
bool gpu_delta_rule_takes(int64_t head_dim);

// Whether one launch computes a delta net for one token of each text
// (kernels/cuda/delta_net/delta_step.cu).
inline constexpr int kDeltaStepDim = 128, kDeltaStepTaps = 4, kDeltaStepRows = 512;
bool gpu_delta_step_takes(const DeltaRuleAttrs& rule, const CausalConvAttrs& conv);

// Whether a GPU computes a state space whose heads have a matrix of state_dim by head_dim,
// likewise.
bool gpu_state_space_takes(int64_t head_dim, int64_t state_dim);

// Whether it computes compressed attention of such heads.
bool gpu_compressed_attention_takes(int64_t head_dim);

// Whether one launch takes products of these formats (marlin_pairs.def).
bool marlin_pair(DType a, DType b);

}  // namespace ktx::kernels
