// Activations to BF16, to nearest even.
#include "kernels/quantize/quantize.h"
#include "lib/formats/act_bf16.h"
#include "lib/formats/dtype.h"

namespace ktx::kernels {

void quantize_bf16_scalar(const QuantizeArgs& a);

void quantize_bf16_scalar(const QuantizeArgs& a) {
  const ElementRange range = quantize_range(a);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t r = 0; r < a.attrs.rows_per_token; ++r) {
      const float* x = a.x + t * a.x_stride + r * a.attrs.stride;
      auto* out = reinterpret_cast<uint16_t*>(a.xq + t * a.xq_stride +
                                              r * act_bf16_row_bytes(a.row_elems));
      for (int64_t i = range.begin; i < range.end; ++i) out[i] = float_to_bfloat16(x[i]);
    }
  }
}

}  // namespace ktx::kernels
