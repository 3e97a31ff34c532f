// Products with int8 activations with ARM's dot products: the loops of matmul_q8_loop.h.
#include "kernels/simd/vec_neon.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_q8_loop.h"
#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

MatmulFn matmul_q8_gemv_dotprod(DType dtype) {
  return kGemvQ8<Neon>[static_cast<int>(dtype)];
}
MatmulFn matmul_q8_gemm_dotprod(DType dtype) {
  return kGemmQ8<Neon>[static_cast<int>(dtype)];
}

}  // namespace ktx::kernels
