// Products of float weights in panels with AVX-512: the loops of matmul_panel_float_loop.h.
#include "kernels/matmul/float_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_panel_float_loop.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_float_avx512(DType dtype);
MatmulFn matmul_panel16_bf16_avx512(DType dtype);

MatmulFn matmul_panel16_float_avx512(DType dtype) {
  return exact_panel_product<FloatAvx512>(dtype);
}
MatmulFn matmul_panel16_bf16_avx512(DType dtype) {
  if (dtype != DType::BF16) return nullptr;
  return has_bf16_dots() ? matmul_panel16_bf16_dots : matmul_panel16_bf16_floats;
}
void matmul_panel16_bf16_floats(const MatmulArgs& args) {
  panel_product_float<FloatAvx512, RoundedPanelForm<FloatAvx512>>(args);
}

}  // namespace ktx::kernels
