#include "kernels/gpu/gpu_limits.h"

#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

bool marlin_gemv_fits(DType dtype, int64_t cols, int64_t x_rows, int64_t shared_memory) {
  const int64_t tiles = (cols + 255) / 256, tile_bytes = marlin_strip_bytes(dtype, 256);
  return x_rows * tiles * 580 + 8 * tile_bytes + 32 * 1024 <= shared_memory;
}

// 32 tokens of the widest format (Q8_0) need 168 KiB, of the others at most 138.
bool marlin_gemm_fits(DType dtype, int64_t shared_memory) {
  return shared_memory >= (dtype == DType::Q8_0 ? 172 : 140) * 1024;
}

bool gpu_delta_rule_takes(int64_t head_dim) {
  return head_dim % 4 == 0 && head_dim >= 4 && head_dim <= 256;
}

bool gpu_delta_step_takes(const DeltaRuleAttrs& rule, const CausalConvAttrs& conv) {
  return rule.head_dim == kDeltaStepDim && rule.by_channel == 0 && conv.taps == kDeltaStepTaps &&
         conv.plain == 0 &&
         conv.channels == (2 * rule.key_heads + rule.value_heads) * rule.head_dim;
}

bool gpu_state_space_takes(int64_t head_dim, int64_t state_dim) {
  return head_dim % 4 == 0 && head_dim >= 4 && state_dim % 4 == 0 && state_dim >= 4 &&
         state_dim <= 256;
}

bool gpu_compressed_attention_takes(int64_t head_dim) {
  return head_dim <= 1024;  // columns of a value in attention_any.cu
}

bool marlin_pair(DType a, DType b) {
  if (a == b) return marlin_takes(a);
#define KTX_MARLIN_PAIR(first, second)                                                          \
  if ((a == DType::first && b == DType::second) || (a == DType::second && b == DType::first)) { \
    return true;                                                                                \
  }
#include "kernels/gpu/marlin_pairs.def"
#undef KTX_MARLIN_PAIR
  return false;
}

}  // namespace ktx::kernels
