// Activations to BF16 with AVX2, 16 at a time: the same bytes as quantize_bf16_scalar.
#include "kernels/quantize/quantize_bf16_rows.h"
#include "kernels/simd/avx2.h"

namespace ktx::kernels {

void quantize_bf16_avx2(const QuantizeArgs& a);

namespace {

// In the lower half of each lane. A NaN becomes quiet and keeps its upper half.
__m256i rounded(const float* x) {
  const __m256 v = _mm256_loadu_ps(x);
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, is_nan), 16);
}

}  // namespace

void quantize_bf16_avx2(const QuantizeArgs& a) {
  for_bf16_rows(a, [](const float* x, uint16_t* out, ElementRange range) {
    for (int64_t i = range.begin; i < range.end; i += 16) {
      const __m256i both = _mm256_packus_epi32(rounded(x + i), rounded(x + i + 8));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                          _mm256_permute4x64_epi64(both, 0xd8));
    }
  });
}

}  // namespace ktx::kernels
