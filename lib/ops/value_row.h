// Bytes of one row of an activation.
#pragma once

#include "lib/formats/act_bf16.h"
#include "lib/formats/act_q8.h"
#include "lib/ops/step_ops.h"

namespace ktx {

// `width`: elements, a multiple of 32 for inputs of products.
constexpr int64_t value_row_bytes(ValueType type, int64_t width) {
  if (type == ValueType::Q8) return act_q8_row_bytes(width);
  if (type == ValueType::BF16) return act_bf16_row_bytes(width);
  return width * 4;
}

}  // namespace ktx
