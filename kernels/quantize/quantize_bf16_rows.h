// The rows of activations that become BF16: round(x, out, range) for each, x its floats and out its
// BF16 numbers.
#pragma once

#include "kernels/quantize/quantize.h"
#include "lib/formats/act_bf16.h"

namespace ktx::kernels {
namespace {

template <class Round>
void for_bf16_rows(const QuantizeArgs& a, const Round& round) {
  const ElementRange range = quantize_range(a);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t r = 0; r < a.attrs.rows_per_token; ++r) {
      const float* x = a.x + t * a.x_stride + r * a.attrs.stride;
      std::byte* out = a.xq + t * a.xq_stride + r * act_bf16_row_bytes(a.row_elems);
      round(x, reinterpret_cast<uint16_t*>(out), range);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
