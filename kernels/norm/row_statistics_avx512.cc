// match_rms and gaussian_topk with AVX-512: the loops of row_statistics_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/norm/row_statistics_loop.h"

namespace ktx::kernels {

void match_rms_avx512(const MatchRmsArgs& a);
void gaussian_topk_avx512(const GaussianTopKArgs& a);

void match_rms_avx512(const MatchRmsArgs& a) {
  match_rms<Avx512>(a);
}
void gaussian_topk_avx512(const GaussianTopKArgs& a) {
  gaussian_topk<Avx512>(a);
}

}  // namespace ktx::kernels
