// What attention's sums are made of, one struct a kind of operand, over a vector policy
// (simd/README.md):
//
//   FloatDots<V>     floats, for a cache of F32
//   RoundedDots<V>   numbers rounded to BF16, in pairs of neighbours (columns of scores, positions
//                    of weighted values), the odd one first: the bits of PairDots
//   PairDots         the same with vdpbf16ps, twice the products an instruction
//                    (attention_avx512bf16.cc)
//
// Q vectors, keys, weights and values are kept as elements of 4 bytes, kCols numbers each;
// numbers are taken in groups of kGroup, filled up with zeros. Why floats can have the bits of
// vdpbf16ps: matmul/float_forms.h. Included by attention_span.h only.
#pragma once

#include "kernels/simd/exp.h"
#include "kernels/simd/flush_subnormals.h"

#define KTX_ALWAYS_INLINE __attribute__((always_inline))

namespace ktx::kernels {
namespace {

template <class Policy>
struct FloatDots {
  using V = Policy;
  using F = typename V::F;
  using Elem = float;
  using W = F;
  static constexpr int kCols = 1, kGroup = 1;
  static constexpr bool kRounded = false;
  // Scores are in units in which a weight is exp_of() of them.
  static constexpr float kUnit = 1.0f;
  KTX_INLINE F exp_of(F x) { return exp16<V>(x); }

  // Where number i of a group's sums stands that is taken i-th.
  KTX_INLINE int64_t in_order(int64_t i) { return i; }
  KTX_INLINE W load(const Elem* p) { return V::load(p); }
  KTX_INLINE W set1(const Elem* p) { return V::set1(*p); }
  KTX_INLINE F fma(W a, W b, F sum) { return V::fma(a, b, sum); }

  // 16 columns of a row of the cache (or of a q vector, whose numbers may be of any kind).
  template <bool kCached>
  KTX_INLINE W operand(F x) {
    return x;
  }
  KTX_INLINE void store(Elem* out, W w) { V::store(out, w); }
  KTX_INLINE F as_floats(W w) { return w; }  // (for moves)
  // 16 columns of two rows of the cache; rows of elements are `stride` apart.
  KTX_INLINE void store_rows(Elem* out, int64_t stride, F a, F b) {
    V::store(out, a);
    V::store(out + stride, b);
  }
  // Weights of positions j to j + 15 over scores of their row, whose first ones they may replace.
  KTX_INLINE void store_weights(float* row, int64_t j, F p) { V::store(row + j, p); }
  KTX_INLINE const Elem* weights(const float* row) { return row; }
  // sum + the last weights from w times their values from v; `both`: the second one too.
  KTX_INLINE F last(const Elem* w, const Elem* v, int64_t, bool, F sum) {
    return fma(set1(w), load(v), sum);
  }
};

template <class Policy>
struct RoundedDots : FloatDots<Policy> {
  using V = Policy;
  using F = typename V::F;
  using Elem = float;
  using W = F;
  static constexpr int kCols = 1, kGroup = 2;
  static constexpr bool kRounded = true;
  static constexpr float kUnit = 1.44269504f;  // of powers of two
  KTX_INLINE F exp_of(F x) { return power_of_two16<V>(x); }

  KTX_INLINE int64_t in_order(int64_t i) { return i ^ 1; }
  template <bool kCached>
  KTX_INLINE W operand(F x) {
    return kCached ? V::round_short_bf16(x) : V::round_bf16(x);
  }
  KTX_INLINE void store_rows(Elem* out, int64_t stride, F a, F b) {
    V::store(out, V::round_short_bf16(a));
    V::store(out + stride, V::round_short_bf16(b));
  }
  KTX_INLINE void store_weights(float* row, int64_t j, F p) { V::store(row + j, V::round_bf16(p)); }
  KTX_INLINE F last(const Elem* w, const Elem* v, int64_t stride, bool both, F sum) {
    sum = V::fma(V::set1(w[1]), both ? V::load(v + stride) : V::zero(), sum);
    return V::fma(V::set1(w[0]), V::load(v), sum);
  }
};

}  // namespace
}  // namespace ktx::kernels
