// Attention over caches of 16 and 8 bits for processors with the instructions of BF16: the loops
// of attention_loop.h over pairs of numbers and vdpbf16ps, of the bits of RoundedDots
// (attention_dots.h); and, where FMAs of floats are faster, RoundedDots with numbers rounded by
// an instruction (two instead of nine).
#include "kernels/attention/cache_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/attention/attention_bf16.h"
#include "kernels/attention/attention_loop.h"

namespace ktx::kernels {
namespace {

// An element is two BF16 numbers, the first one in the low half.
struct PairDots {
  using V = CacheAvx512;
  using F = __m512;
  using Elem = uint32_t;
  using W = __m512i;
  static constexpr int kCols = 2, kGroup = 2;
  static constexpr bool kRounded = true;
  static constexpr float kUnit = RoundedDots<CacheAvx512>::kUnit;
  KTX_INLINE F exp_of(F x) { return power_of_two16<CacheAvx512>(x); }

  KTX_INLINE int64_t in_order(int64_t i) { return i; }
  KTX_INLINE W load(const Elem* p) { return _mm512_loadu_si512(p); }
  KTX_INLINE W set1(const Elem* p) {
    int32_t pair;  // (of scores, which are floats, too)
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  // (As the intrinsic, of which some compilers make a copy of each sum first.)
  KTX_INLINE F fma(W a, W b, F sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }

  KTX_INLINE W operands(F a, F b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }
  KTX_INLINE void store(Elem* out, W w) { _mm512_storeu_si512(out, w); }
  KTX_INLINE F as_floats(W w) { return _mm512_castsi512_ps(w); }
  KTX_INLINE void store_rows(Elem* out, int64_t, F a, F b) {
    const __m512i turn = _mm512_add_epi32(
        _mm512_set1_epi32(0x100000),
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(0x10001)));
    const __m512i one_by_one = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(turn, one_by_one));
  }
  KTX_INLINE void store_weights(float* row, int64_t j, F p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + j / 2), (__m256i)_mm512_cvtneps_pbh(p));
  }
  KTX_INLINE const Elem* weights(const float* row) { return reinterpret_cast<const Elem*>(row); }
  KTX_INLINE F last(const Elem* w, const Elem* v, int64_t, bool both, F sum) {
    const W first = _mm512_and_si512(load(v), _mm512_set1_epi32(0xFFFF));
    return fma(set1(w), both ? load(v) : first, sum);
  }
};

struct RoundingAvx512 : CacheAvx512 {
  KTX_INLINE F round_bf16(F v) {
    const __m512i words = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
};

}  // namespace

void attention_bf16_dots(const AttentionArgs& a) {
  attention<PairDots>(a);
}

void attention_bf16_rounded(const AttentionArgs& a) {
  attention<RoundedDots<RoundingAvx512>>(a);
}

}  // namespace ktx::kernels
