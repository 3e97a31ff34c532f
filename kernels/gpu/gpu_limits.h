// Limits of GPU kernels that the launchers check and the choice of a kernel keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/dtype.h"

namespace ktx::kernels {

inline constexpr int64_t kSkinnyRows = 96;     // of skinny GEMMs at most, three of 32 rows
inline constexpr size_t kLaunchProducts = 3;   // products that one launch takes
inline constexpr int32_t kFusedExperts = 256;  // of experts_gemv
inline constexpr int32_t kFusedTopK = 32;

// Whether `shared_memory` bytes hold `x_rows` rows of activations beside the ring of a GEMV, with
// the most strips that a block has and one tile a warp.
bool marlin_gemv_fits(DType dtype, int64_t cols, int64_t x_rows, int64_t shared_memory);

// Whether they hold what a GEMM of marlin weights stages.
bool marlin_gemm_fits(DType dtype, int64_t shared_memory);

// Whether a GPU computes the gated delta rule of heads of `head_dim`, whose matrix is in registers.
bool gpu_delta_rule_takes(int64_t head_dim);

// Whether one launch takes products of these formats (marlin_pairs.def).
bool marlin_pair(DType a, DType b);

}  // namespace ktx::kernels
