// Products of weights in panels with AVX2: the loops of matmul_panel_loop.h.
#include "kernels/matmul/panel_vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_loop.h"
#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_q8_gemv_avx2(DType dtype) {
  return of_panel16<PanelGemv<PanelAvx2, 1>>(dtype);
}
MatmulFn matmul_panel16_q8_gemv2_avx2(DType dtype) {
  return of_panel16<PanelGemv<PanelAvx2, 2>>(dtype);
}
MatmulFn matmul_panel16_q8_skinny_avx2(DType dtype) {
  return of_panel16<PanelSkinny<PanelAvx2>>(dtype);
}
MatmulFn matmul_panel16_q8_gemm_avx2(DType dtype) {
  return of_panel16<PanelGemm<PanelAvx2>>(dtype);
}

MatmulFn matmul_panel16s_q8_gemv_avx2(DType dtype) {
  return of_panel16_stream<PanelGemv<PanelAvx2, 1>>(dtype);
}
MatmulFn matmul_panel16s_q8_gemv2_avx2(DType dtype) {
  return of_panel16_stream<PanelGemv<PanelAvx2, 2>>(dtype);
}
MatmulFn matmul_panel16s_q8_skinny_avx2(DType dtype) {
  return of_panel16_stream<PanelSkinny<PanelAvx2>>(dtype);
}
MatmulFn matmul_panel16s_q8_gemm_avx2(DType dtype) {
  return of_panel16_stream<PanelGemm<PanelAvx2>>(dtype);
}

}  // namespace ktx::kernels
