// Products of weights in panels with ARM's dot products: the loops of matmul_panel_loop.h.
#include "kernels/matmul/panel_vec_neon.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_loop.h"
#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_q8_gemv_dotprod(DType dtype) {
  return of_panel16<PanelGemv<PanelNeon, 1>>(dtype);
}
MatmulFn matmul_panel16_q8_gemv2_dotprod(DType dtype) {
  return of_panel16<PanelGemv<PanelNeon, 2>>(dtype);
}
MatmulFn matmul_panel16_q8_skinny_dotprod(DType dtype) {
  return of_panel16<PanelSkinny<PanelNeon>>(dtype);
}
MatmulFn matmul_panel16_q8_gemm_dotprod(DType dtype) {
  return of_panel16<PanelGemm<PanelNeon>>(dtype);
}

MatmulFn matmul_panel16s_q8_gemv_dotprod(DType dtype) {
  return of_panel16_stream<PanelGemv<PanelNeon, 1>>(dtype);
}
MatmulFn matmul_panel16s_q8_gemv2_dotprod(DType dtype) {
  return of_panel16_stream<PanelGemv<PanelNeon, 2>>(dtype);
}
MatmulFn matmul_panel16s_q8_skinny_dotprod(DType dtype) {
  return of_panel16_stream<PanelSkinny<PanelNeon>>(dtype);
}
MatmulFn matmul_panel16s_q8_gemm_dotprod(DType dtype) {
  return of_panel16_stream<PanelGemm<PanelNeon>>(dtype);
}

}  // namespace ktx::kernels
