// Products of float weights in panels with AVX-512: the loops of matmul_panel_float_loop.h.
#include "kernels/matmul/float_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_panel_float_loop.h"
#include "kernels/matmul/matmul_selectors.h"
#include "lib/target/fast_bf16_dots.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_float_gemv_avx512(DType dtype) {
  return exact_panel_gemv<FloatAvx512>(dtype);
}
MatmulFn matmul_panel16_float_gemm_avx512(DType dtype) {
  return exact_panel_gemm<FloatAvx512>(dtype);
}
MatmulFn matmul_panel16_bf16_gemv_avx512(DType dtype) {
  if (dtype != DType::BF16) return nullptr;
  return has_fast_bf16_dots() ? matmul_panel16_bf16_dots_gemv : matmul_panel16_bf16_floats_gemv;
}
MatmulFn matmul_panel16_bf16_gemm_avx512(DType dtype) {
  if (dtype != DType::BF16) return nullptr;
  return has_fast_bf16_dots() ? matmul_panel16_bf16_dots_gemm : matmul_panel16_bf16_floats_gemm;
}
void matmul_panel16_bf16_floats_gemv(const MatmulArgs& args) {
  float_panel_gemv<FloatAvx512, RoundedPanelForm<FloatAvx512>>(args);
}
void matmul_panel16_bf16_floats_gemm(const MatmulArgs& args) {
  float_panel_gemm<FloatAvx512, RoundedPanelForm<FloatAvx512>>(args);
}

}  // namespace ktx::kernels
