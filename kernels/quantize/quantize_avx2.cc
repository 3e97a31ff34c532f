// Activations to int8 with AVX2, 32 at a time: the same bytes as quantize_scalar.
#include <immintrin.h>

#include "kernels/quantize/quantize.h"

namespace ktx::kernels {

void quantize_avx2(const QuantizeArgs& a);

namespace {

struct Group {
  __m256 x[4];
};

// The largest magnitude; infinity or NaN when the group holds one. Magnitudes order
// as integers, NaN above infinity.
uint32_t largest_bits(const Group& g) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i m = _mm256_setzero_si256();
  for (const __m256& x : g.x) {
    m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
  }
  __m128i h = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(h));
}

// Codes of a group, in order.
__m256i codes_of(const Group& g, float inverse) {
  const __m256 factor = _mm256_set1_ps(inverse);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(g.x[i], factor));
  // Packing works within halves: 4-byte runs come out as 0 2 4 6 1 3 5 7.
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

float quantize_group(const float* x, int8_t* q, int16_t* sum) {
  Group g;
  for (int i = 0; i < 4; ++i) g.x[i] = _mm256_loadu_ps(x + 8 * i);
  const uint32_t bits = largest_bits(g);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  const bool finite = bits < 0x7f800000;
  const float scale = finite ? largest / 127 : __builtin_nanf("");
  __m256i codes = _mm256_setzero_si256();
  const bool usable = finite && scale >= 1e-37f;
  if (usable) codes = codes_of(g, 127 / largest);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), codes);
  // Sums of 4, then of 16: lane 0 and lane 4 of the last register.
  const __m256i twos = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  const __m256i fours = _mm256_madd_epi16(twos, _mm256_set1_epi16(1));
  const __m256i eights = _mm256_hadd_epi32(fours, fours);
  const __m256i all = _mm256_hadd_epi32(eights, eights);
  sum[0] = static_cast<int16_t>(_mm256_extract_epi32(all, 0));
  sum[1] = static_cast<int16_t>(_mm256_extract_epi32(all, 4));
  return usable || !finite ? scale : 0;
}

void quantize_row(const float* x, int64_t k, ElementRange range, std::byte* row) {
  int8_t* q = reinterpret_cast<int8_t*>(row);
  float* scale = reinterpret_cast<float*>(row + act_q8_scale_offset(k));
  int16_t* sum = reinterpret_cast<int16_t*>(row + act_q8_sum_offset(k));
  for (int64_t g = range.begin / kActQ8Group; g < range.end / kActQ8Group; ++g) {
    scale[g] = quantize_group(x + g * kActQ8Group, q + g * kActQ8Group, sum + 2 * g);
  }
  if (range.end < k) return;
  const int64_t padded = act_q8_padded(k);
  for (int64_t i = k; i < padded; ++i) q[i] = 0;
  for (int64_t g = k / kActQ8Group; g < padded / kActQ8Group; ++g) {
    scale[g] = 0;
    sum[2 * g] = sum[2 * g + 1] = 0;
  }
}

}  // namespace

void quantize_avx2(const QuantizeArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t r = 0; r < a.attrs.rows_per_token; ++r) {
      quantize_row(a.x + t * a.x_stride + r * a.attrs.stride, a.row_elems, quantize_range(a),
                   a.xq + t * a.xq_stride + r * act_q8_row_bytes(a.row_elems));
    }
  }
}

}  // namespace ktx::kernels
