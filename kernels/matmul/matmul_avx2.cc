// The products with AVX2: the loops of matmul_float_loop.h, matmul_transposed_loop.h and
// matmul_q8_loop.h.
#include "kernels/matmul/float_vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_float_loop.h"
#include "kernels/matmul/matmul_q8_loop.h"
#include "kernels/matmul/matmul_transposed_loop.h"
#include "kernels/matmul/panel_as_rows.h"

namespace ktx::kernels {

MatmulFn matmul_f32_avx2(DType dtype);
MatmulFn matmul_bf16_avx2(DType dtype);
MatmulFn matmul_q8_avx2(DType dtype);
MatmulFn matmul_panel16_f32_avx2(DType dtype);
MatmulFn matmul_panel16s_f32_avx2(DType dtype);
MatmulTransposedFn matmul_transposed_f32_avx2(DType dtype);

namespace {

constexpr MatmulFn kQ8[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) q8_kernel<Avx2, DType::id, Block##id, elems>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

}  // namespace

MatmulFn matmul_f32_avx2(DType dtype) {
  return exact_product<FloatAvx2>(dtype);
}
MatmulFn matmul_bf16_avx2(DType dtype) {
  return dtype == DType::BF16 ? product_float<FloatAvx2, RoundedForm<FloatAvx2>> : nullptr;
}
MatmulFn matmul_q8_avx2(DType dtype) {
  return kQ8[static_cast<int>(dtype)];
}
MatmulFn matmul_panel16_f32_avx2(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<product_float<FloatAvx2, DecodedForm<FloatAvx2>>>
                             : nullptr;
}
MatmulFn matmul_panel16s_f32_avx2(DType dtype) {
  return panel16_stream_takes(dtype) ? matmul_panel16_f32_avx2(dtype) : nullptr;
}
MatmulTransposedFn matmul_transposed_f32_avx2(DType) {
  return product_transposed<Avx2>;
}

}  // namespace ktx::kernels
