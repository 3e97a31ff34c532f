// Activations to int8 with AVX2, 128 at a time: the same bytes as quantize_scalar.
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/shared_scale.h"
#include "kernels/simd/avx2.h"

namespace ktx::kernels {

void quantize_avx2(const QuantizeArgs& a);

namespace {

struct Group {
  __m256 x[4];
};

// The largest magnitude; infinity or NaN when the group holds one. Magnitudes order
// as integers, NaN above infinity.
int32_t largest_bits(const Group& g) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i m = _mm256_setzero_si256();
  for (const __m256& x : g.x) {
    m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
  }
  __m128i h = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xB1));
  return _mm_cvtsi128_si32(h);
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

Group load_group(const float* x) {
  Group g;
  for (int i = 0; i < 4; ++i) g.x[i] = _mm256_loadu_ps(x + 8 * i);
  return g;
}

// Sums of 16 codes each.
void write_sums(__m256i codes, int16_t* sum) {
  // Sums of 4 codes, then of 16, in lane 0 and lane 4 of the last register.
  const __m256i twos = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  const __m256i fours = _mm256_madd_epi16(twos, _mm256_set1_epi16(1));
  const __m256i eights = _mm256_hadd_epi32(fours, fours);
  const __m256i all = _mm256_hadd_epi32(eights, eights);
  sum[0] = static_cast<int16_t>(_mm256_extract_epi32(all, 0));
  sum[1] = static_cast<int16_t>(_mm256_extract_epi32(all, 4));
}

// 128 columns, of which `groups` times 32 are there.
void quantize_shared(const float* x, int64_t groups, int8_t* q, float* scale, int16_t* sum) {
  Int4 largest = {};
  for (int64_t g = 0; g < groups; ++g) largest[g] = largest_bits(load_group(x + 32 * g));
  const Float4 top = share_scale(largest);
  const bool usable = top[0] > 0;
  for (int64_t g = 0; g < kSharedGroups; ++g) {
    scale[g] = top[g] / 127;
    __m256i codes = _mm256_setzero_si256();
    if (usable && g < groups) codes = codes_of(load_group(x + 32 * g), 127 / top[g]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * g), codes);
    write_sums(codes, sum + 2 * g);
  }
}

void quantize_row(const float* x, int64_t k, ElementRange range, std::byte* row) {
  int8_t* q = reinterpret_cast<int8_t*>(row);
  float* scale = reinterpret_cast<float*>(row + act_q8_scale_offset(k));
  int16_t* sum = reinterpret_cast<int16_t*>(row + act_q8_sum_offset(k));
  const int64_t end = range.end < k ? range.end : act_q8_padded(k);
  for (int64_t i = range.begin; i < end; i += kActQ8Shared) {
    const int64_t left = k > i ? (k - i) / kActQ8Group : 0;
    quantize_shared(x + i, left < kSharedGroups ? left : kSharedGroups, q + i,
                    scale + i / kActQ8Group, sum + i / 16);
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
