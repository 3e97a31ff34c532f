// Row ops with AVX2: the loops of rows_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/rows/rows_loop.h"

namespace ktx::kernels {

void glu_avx2(const RowsArgs& a);
void add_avx2(const RowsArgs& a);
void activate_avx2(const RowsArgs& a);

void glu_avx2(const RowsArgs& a) {
  glu<Avx2>(a);
}
void add_avx2(const RowsArgs& a) {
  add<Avx2>(a);
}
void activate_avx2(const RowsArgs& a) {
  activate<Avx2>(a);
}

}  // namespace ktx::kernels
