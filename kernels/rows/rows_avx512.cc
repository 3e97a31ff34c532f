// Row ops with AVX-512: the loops of rows_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/rows/rows_loop.h"

namespace ktx::kernels {

void glu_avx512(const RowsArgs& a);
void add_avx512(const RowsArgs& a);
void activate_avx512(const RowsArgs& a);

void glu_avx512(const RowsArgs& a) {
  glu<Avx512>(a);
}
void add_avx512(const RowsArgs& a) {
  add<Avx512>(a);
}
void activate_avx512(const RowsArgs& a) {
  activate<Avx512>(a);
}

}  // namespace ktx::kernels
