// The products with AVX-512: the loops of matmul_float_loop.h, matmul_transposed_loop.h and
// matmul_q8_loop.h.
#include "kernels/matmul/float_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_float_loop.h"
#include "kernels/matmul/matmul_q8_loop.h"
#include "kernels/matmul/matmul_transposed_loop.h"
#include "kernels/matmul/panel_as_rows.h"

namespace ktx::kernels {

MatmulFn matmul_f32_avx512(DType dtype);
MatmulFn matmul_bf16_avx512(DType dtype);
MatmulFn matmul_q8_avx512(DType dtype);
MatmulFn matmul_panel16_f32_avx512(DType dtype);
MatmulFn matmul_panel16s_f32_avx512(DType dtype);
MatmulTransposedFn matmul_transposed_f32_avx512(DType dtype);

namespace {

constexpr MatmulFn kQ8[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) q8_kernel<Avx512, DType::id, Block##id, elems>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

}  // namespace

MatmulFn matmul_f32_avx512(DType dtype) {
  return exact_product<FloatAvx512>(dtype);
}
MatmulFn matmul_bf16_avx512(DType dtype) {
  if (dtype != DType::BF16) return nullptr;
  return has_bf16_dots() ? matmul_bf16_dots : matmul_bf16_floats;
}
void matmul_bf16_floats(const MatmulArgs& args) {
  product_float<FloatAvx512, RoundedForm<FloatAvx512>>(args);
}
MatmulFn matmul_q8_avx512(DType dtype) {
  return kQ8[static_cast<int>(dtype)];
}
MatmulFn matmul_panel16_f32_avx512(DType dtype) {
  return panel16_form(dtype)
             ? product_of_panels<product_float<FloatAvx512, DecodedForm<FloatAvx512>>>
             : nullptr;
}
MatmulFn matmul_panel16s_f32_avx512(DType dtype) {
  return panel16_stream_takes(dtype) ? matmul_panel16_f32_avx512(dtype) : nullptr;
}
MatmulTransposedFn matmul_transposed_f32_avx512(DType) {
  return product_transposed<Avx512>;
}

}  // namespace ktx::kernels
