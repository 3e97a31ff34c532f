// Products of weights in panels with AVX-512 VNNI: the loops of matmul_panel_loop.h.
#include "kernels/matmul/panel_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_loop.h"
#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_q8_gemv_avx512(DType dtype) {
  return of_panel16<PanelGemv<PanelAvx512, 1>>(dtype);
}
MatmulFn matmul_panel16_q8_gemv2_avx512(DType dtype) {
  return of_panel16<PanelGemv<PanelAvx512, 2>>(dtype);
}
MatmulFn matmul_panel16_q8_skinny_avx512(DType dtype) {
  return of_panel16<PanelSkinny<PanelAvx512>>(dtype);
}
MatmulFn matmul_panel16_q8_gemm_avx512(DType dtype) {
  return of_panel16<PanelGemm<PanelAvx512>>(dtype);
}

MatmulFn matmul_panel16s_q8_gemv_avx512(DType dtype) {
  return of_panel16_stream<PanelGemv<PanelAvx512, 1>>(dtype);
}
MatmulFn matmul_panel16s_q8_gemv2_avx512(DType dtype) {
  return of_panel16_stream<PanelGemv<PanelAvx512, 2>>(dtype);
}
MatmulFn matmul_panel16s_q8_skinny_avx512(DType dtype) {
  return of_panel16_stream<PanelSkinny<PanelAvx512>>(dtype);
}
MatmulFn matmul_panel16s_q8_gemm_avx512(DType dtype) {
  return of_panel16_stream<PanelGemm<PanelAvx512>>(dtype);
}

}  // namespace ktx::kernels
