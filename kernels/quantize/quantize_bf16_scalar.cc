// Activations to BF16, to nearest even.
#include "kernels/quantize/quantize_bf16_rows.h"
#include "lib/formats/dtype.h"

namespace ktx::kernels {

void quantize_bf16_scalar(const QuantizeArgs& a);

void quantize_bf16_scalar(const QuantizeArgs& a) {
  for_bf16_rows(a, [](const float* x, uint16_t* out, ElementRange range) {
    for (int64_t i = range.begin; i < range.end; ++i) out[i] = float_to_bfloat16(x[i]);
  });
}

}  // namespace ktx::kernels
