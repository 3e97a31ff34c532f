// The products with AVX2: the loops of matmul_float_loop.h, matmul_transposed_loop.h and
// matmul_q8_loop.h.
#include "kernels/matmul/float_vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_float_loop.h"
#include "kernels/matmul/matmul_q8_loop.h"
#include "kernels/matmul/matmul_selectors.h"
#include "kernels/matmul/matmul_transposed_loop.h"
#include "kernels/matmul/panel_as_rows.h"
#include "kernels/simd/vec_avx2.h"

namespace ktx::kernels {

MatmulFn matmul_f32_skinny_avx2(DType dtype) {
  return exact_skinny<FloatAvx2>(dtype);
}
MatmulFn matmul_f32_gemm_avx2(DType dtype) {
  return exact_gemm<FloatAvx2>(dtype);
}
MatmulFn matmul_decoded_gemv_avx2(DType dtype) {
  return is_float(dtype) ? nullptr : decoded_gemv<FloatAvx2>;
}
MatmulFn matmul_decoded_gemm_avx2(DType dtype) {
  return is_float(dtype) ? nullptr : decoded_gemm<FloatAvx2>;
}

MatmulFn matmul_bf16_skinny_avx2(DType dtype) {
  return dtype == DType::BF16 ? float_skinny<FloatAvx2, RoundedForm<FloatAvx2>> : nullptr;
}
MatmulFn matmul_bf16_gemm_avx2(DType dtype) {
  return dtype == DType::BF16 ? float_gemm<FloatAvx2, RoundedForm<FloatAvx2>> : nullptr;
}

MatmulFn matmul_q8_gemv_avx2(DType dtype) {
  return kGemvQ8<Avx2>[static_cast<int>(dtype)];
}
MatmulFn matmul_q8_gemm_avx2(DType dtype) {
  return kGemmQ8<Avx2>[static_cast<int>(dtype)];
}

MatmulFn matmul_panel16_decoded_gemv_avx2(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<decoded_gemv<FloatAvx2>> : nullptr;
}
MatmulFn matmul_panel16s_decoded_gemv_avx2(DType dtype) {
  return panel16_stream_takes(dtype) ? matmul_panel16_decoded_gemv_avx2(dtype) : nullptr;
}
MatmulFn matmul_panel16_decoded_gemm_avx2(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<decoded_gemm<FloatAvx2>> : nullptr;
}
MatmulFn matmul_panel16s_decoded_gemm_avx2(DType dtype) {
  return panel16_stream_takes(dtype) ? matmul_panel16_decoded_gemm_avx2(dtype) : nullptr;
}

MatmulTransposedFn matmul_transposed_f32_avx2(DType) {
  return product_transposed<Avx2>;
}

}  // namespace ktx::kernels
