// Products of weights in panels with AVX-512 VNNI: the loops of matmul_panel_loop.h.
#include "kernels/matmul/panel_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_loop.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_q8_avx512(DType dtype);
MatmulFn matmul_panel16s_q8_avx512(DType dtype);

MatmulFn matmul_panel16_q8_avx512(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return panel_product<PanelAvx512, PanelCodes<PanelAvx512, DType::id>>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}

MatmulFn matmul_panel16s_q8_avx512(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16_STREAM(id) \
  case DType::id:              \
    return panel_product<PanelAvx512, StreamCodes<PanelAvx512, DType::id>>;
#include "lib/formats/panel16_stream.def"
#undef KTX_PANEL16_STREAM
    default:
      return nullptr;
  }
}

}  // namespace ktx::kernels
