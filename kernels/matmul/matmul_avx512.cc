// The products with AVX-512: the loops of matmul_float_loop.h, matmul_transposed_loop.h and
// matmul_q8_loop.h.
#include "kernels/matmul/float_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_float_loop.h"
#include "kernels/matmul/matmul_q8_loop.h"
#include "kernels/matmul/matmul_selectors.h"
#include "kernels/matmul/matmul_transposed_loop.h"
#include "kernels/matmul/panel_as_rows.h"
#include "lib/target/fast_bf16_dots.h"

namespace ktx::kernels {

MatmulFn matmul_f32_skinny_avx512(DType dtype) {
  return exact_skinny<FloatAvx512>(dtype);
}
MatmulFn matmul_f32_gemm_avx512(DType dtype) {
  return exact_gemm<FloatAvx512>(dtype);
}
MatmulFn matmul_decoded_gemv_avx512(DType dtype) {
  return is_float(dtype) ? nullptr : decoded_gemv<FloatAvx512>;
}
MatmulFn matmul_decoded_gemm_avx512(DType dtype) {
  return is_float(dtype) ? nullptr : decoded_gemm<FloatAvx512>;
}

MatmulFn matmul_bf16_skinny_avx512(DType dtype) {
  if (dtype != DType::BF16) return nullptr;
  return has_fast_bf16_dots() ? matmul_bf16_dots_skinny : matmul_bf16_floats_skinny;
}
MatmulFn matmul_bf16_gemm_avx512(DType dtype) {
  if (dtype != DType::BF16) return nullptr;
  return has_fast_bf16_dots() ? matmul_bf16_dots_gemm : matmul_bf16_floats_gemm;
}
void matmul_bf16_floats_skinny(const MatmulArgs& args) {
  float_skinny<FloatAvx512, RoundedForm<FloatAvx512>>(args);
}
void matmul_bf16_floats_gemm(const MatmulArgs& args) {
  float_gemm<FloatAvx512, RoundedForm<FloatAvx512>>(args);
}

MatmulFn matmul_q8_gemv_avx512(DType dtype) {
  return kGemvQ8<Avx512>[static_cast<int>(dtype)];
}
MatmulFn matmul_q8_gemm_avx512(DType dtype) {
  return kGemmQ8<Avx512>[static_cast<int>(dtype)];
}

MatmulFn matmul_panel16_decoded_gemv_avx512(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<decoded_gemv<FloatAvx512>> : nullptr;
}
MatmulFn matmul_panel16s_decoded_gemv_avx512(DType dtype) {
  return panel16_stream_takes(dtype) ? matmul_panel16_decoded_gemv_avx512(dtype) : nullptr;
}
MatmulFn matmul_panel16_decoded_gemm_avx512(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<decoded_gemm<FloatAvx512>> : nullptr;
}
MatmulFn matmul_panel16s_decoded_gemm_avx512(DType dtype) {
  return panel16_stream_takes(dtype) ? matmul_panel16_decoded_gemm_avx512(dtype) : nullptr;
}

MatmulTransposedFn matmul_transposed_f32_avx512(DType) {
  return product_transposed<Avx512>;
}

}  // namespace ktx::kernels
