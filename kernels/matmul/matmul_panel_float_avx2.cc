// Products of float weights in panels with AVX2: the loops of matmul_panel_float_loop.h.
#include "kernels/matmul/float_vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_float_loop.h"
#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_float_gemv_avx2(DType dtype) {
  return exact_panel_gemv<FloatAvx2>(dtype);
}
MatmulFn matmul_panel16_float_gemm_avx2(DType dtype) {
  return exact_panel_gemm<FloatAvx2>(dtype);
}
MatmulFn matmul_panel16_bf16_gemv_avx2(DType dtype) {
  return dtype == DType::BF16 ? float_panel_gemv<FloatAvx2, RoundedPanelForm<FloatAvx2>> : nullptr;
}
MatmulFn matmul_panel16_bf16_gemm_avx2(DType dtype) {
  return dtype == DType::BF16 ? float_panel_gemm<FloatAvx2, RoundedPanelForm<FloatAvx2>> : nullptr;
}

}  // namespace ktx::kernels
