// Sums of streams with AVX-512: the loops of residual_streams_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/streams/residual_streams_loop.h"

namespace ktx::kernels {

void collapse_streams_avx512(const CollapseStreamsArgs& a);
void mix_streams_avx512(const MixStreamsArgs& a);
void attend_streams_avx512(const AttendStreamsArgs& a);
void dot_streams_avx512(const DotStreamsArgs& a);

void collapse_streams_avx512(const CollapseStreamsArgs& a) {
  collapse_streams<Avx512>(a);
}
void mix_streams_avx512(const MixStreamsArgs& a) {
  mix_streams<Avx512>(a);
}
void attend_streams_avx512(const AttendStreamsArgs& a) {
  attend_streams<Avx512>(a);
}
void dot_streams_avx512(const DotStreamsArgs& a) {
  dot_streams<Avx512>(a);
}

}  // namespace ktx::kernels
