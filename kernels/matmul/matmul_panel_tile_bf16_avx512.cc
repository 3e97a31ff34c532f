// Products of weights in panels with BF16 activations in the order of matrix tiles, with
// AVX-512: the loops of matmul_panel_tile_bf16_loop.h and
// matmul_panel_tile_bf16_one.h.
#include "kernels/matmul/panel_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_tile_bf16_one.h"
#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_tile_bf16_gemv_avx512(DType dtype) {
  return panel_tile_bf16_one_of<PanelAvx512>(dtype);
}
MatmulFn matmul_panel16_tile_bf16_gemm_avx512(DType dtype) {
  return panel_tile_bf16_of<PanelAvx512>(dtype);
}

}  // namespace ktx::kernels
