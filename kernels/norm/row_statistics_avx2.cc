// match_rms and gaussian_topk with AVX2: the loops of row_statistics_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/norm/row_statistics_loop.h"

namespace ktx::kernels {

void match_rms_avx2(const MatchRmsArgs& a);
void gaussian_topk_avx2(const GaussianTopKArgs& a);

void match_rms_avx2(const MatchRmsArgs& a) {
  match_rms<Avx2>(a);
}
void gaussian_topk_avx2(const GaussianTopKArgs& a) {
  gaussian_topk<Avx2>(a);
}

}  // namespace ktx::kernels
