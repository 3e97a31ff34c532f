// Row ops over a vector policy (simd/README.md). The last lanes of a row go through the same
// instructions as the others. Included by rows_<isa>.cc only.
#pragma once

#include "kernels/rows/rows.h"
#include "kernels/simd/exp.h"

namespace ktx::kernels {
namespace {

// y[0, n) = op(a[0, n), b[0, n)).
template <class V, class Op>
KTX_INLINE void each(const float* a, const float* b, float* y, int64_t n, Op op) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) V::store(y + i, op(V::load(a + i), V::load(b + i)));
  if (i < n) {
    V::store_part(y + i, n - i, op(V::load_part(a + i, n - i), V::load_part(b + i, n - i)));
  }
}

// The same of each row of two inputs.
template <class V, class Op>
KTX_INLINE void each_row(const RowsArgs& a, Op op) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    each<V>(a.in[0].data + t * a.in[0].stride, a.in[1].data + t * a.in[1].stride,
            a.y + t * a.y_stride, a.width, op);
  }
}

template <class V, Activation activation>
KTX_INLINE typename V::F glu16(typename V::F gate, typename V::F up) {
  if constexpr (activation == Activation::Silu || activation == Activation::SiluUpTo) {
    return V::mul(V::mul(gate, sigmoid16<V>(gate)), up);
  } else if constexpr (activation == Activation::GeluTanh) {
    const typename V::F cube = V::mul(V::mul(V::mul(V::set1(0.044715f), gate), gate), gate);
    const typename V::F bent = V::mul(V::set1(1.5957691216f), V::add(gate, cube));
    return V::mul(V::mul(gate, sigmoid16<V>(bent)), up);
  } else if constexpr (activation == Activation::Sigmoid) {
    return V::mul(sigmoid16<V>(gate), up);
  } else if constexpr (activation == Activation::Product) {
    return V::mul(gate, up);
  } else if constexpr (activation == Activation::Relu) {
    return V::mul(V::max(V::zero(), gate), up);
  } else {
    const typename V::F bent = V::mul(V::set1(1.702f), gate);
    return V::mul(V::mul(gate, sigmoid16<V>(bent)), V::add(up, V::set1(1.0f)));
  }
}

template <class V, Activation activation>
KTX_INLINE void glu_rows(const RowsArgs& a, float limit) {
  if (limit == 0) {
    return each_row<V>(
        a, [](typename V::F gate, typename V::F up)
               __attribute__((always_inline)) { return glu16<V, activation>(gate, up); });
  }
  // (A NaN in the second operand of min and max wins.)
  const typename V::F most = V::set1(limit), least = V::set1(-limit);
  each_row<V>(
      a, [=](typename V::F gate, typename V::F up) __attribute__((always_inline)) {
        const typename V::F clamped = V::max(least, V::min(most, up));
        if constexpr (activation == Activation::SiluUpTo) {
          const typename V::F bent = V::mul(gate, sigmoid16<V>(gate));
          return V::mul(V::min(most, bent), clamped);
        }
        return glu16<V, activation>(V::min(most, gate), clamped);
      });
}

// limit * tanh(x / limit); limit = 0: x.
template <class V>
KTX_INLINE typename V::F bent16(typename V::F x, float limit) {
  if (limit == 0) return x;
  return V::mul(V::set1(limit), tanh16<V>(V::div(x, V::set1(limit))));
}

template <class V>
KTX_INLINE void situ_rows(const RowsArgs& a, const GluAttrs& attrs) {
  each_row<V>(
      a, [=](typename V::F gate, typename V::F up) __attribute__((always_inline)) {
        const typename V::F open = V::mul(bent16<V>(gate, attrs.limit), sigmoid16<V>(gate));
        return V::mul(open, bent16<V>(up, attrs.up_limit));
      });
}

template <class V>
void glu(const RowsArgs& a) {
  const GluAttrs& attrs = *std::get_if<GluAttrs>(&a.attrs);
  switch (static_cast<Activation>(attrs.activation)) {
    case Activation::Silu:
      return glu_rows<V, Activation::Silu>(a, attrs.limit);
    case Activation::GeluTanh:
      return glu_rows<V, Activation::GeluTanh>(a, attrs.limit);
    case Activation::GptOss:
      return glu_rows<V, Activation::GptOss>(a, attrs.limit);
    case Activation::Sigmoid:
      return glu_rows<V, Activation::Sigmoid>(a, attrs.limit);
    case Activation::Product:
      return glu_rows<V, Activation::Product>(a, attrs.limit);
    case Activation::Relu:
      return glu_rows<V, Activation::Relu>(a, attrs.limit);
    case Activation::SiluUpTo:
      return glu_rows<V, Activation::SiluUpTo>(a, attrs.limit);
    case Activation::Situ:
      return situ_rows<V>(a, attrs);
  }
}

// gelu by erf: max(x, 0) - |x| q, where q is what the normal distribution has beyond |x|:
// exp(-x^2 / 2) times a polynomial of 1 / (1 + p |x|), right to 1e-7 (Abramowitz and
// Stegun, 7.1.26). Beyond 14 it is 0 in F32.
template <class V>
KTX_INLINE typename V::F gelu_erf16(typename V::F x) {
  using F = typename V::F;
  const F zero = V::zero(), one = V::set1(1.0f);
  const F size = V::min(V::set1(14.0f), V::max(V::sub(zero, x), x));
  const F t = V::div(one, V::fma(V::set1(0.3275911f * 0.70710678f), size, one));
  F p = V::set1(0.5f * 1.061405429f);
  p = V::fma(p, t, V::set1(0.5f * -1.453152027f));
  p = V::fma(p, t, V::set1(0.5f * 1.421413741f));
  p = V::fma(p, t, V::set1(0.5f * -0.284496736f));
  p = V::fma(p, t, V::set1(0.5f * 0.254829592f));
  const F beyond = V::mul(V::mul(p, t), exp16<V>(V::mul(V::mul(V::set1(-0.5f), size), size)));
  return V::sub(V::max(zero, x), V::mul(size, beyond));
}

template <class V, UnitFunction function>
KTX_INLINE typename V::F unit16(const ActivateAttrs& a, typename V::F x) {
  using F = typename V::F;
  if constexpr (function == UnitFunction::Silu) {
    return V::mul(x, sigmoid16<V>(x));
  } else if constexpr (function == UnitFunction::GeluTanh) {
    const F cube = V::mul(V::mul(V::mul(V::set1(0.044715f), x), x), x);
    return V::mul(x, sigmoid16<V>(V::mul(V::set1(1.5957691216f), V::add(x, cube))));
  } else if constexpr (function == UnitFunction::GeluErf) {
    return gelu_erf16<V>(x);
  } else if constexpr (function == UnitFunction::Relu) {
    return V::max(V::zero(), x);
  } else if constexpr (function == UnitFunction::ReluSquared) {
    const F positive = V::max(V::zero(), x);
    return V::mul(positive, positive);
  } else if constexpr (function == UnitFunction::Xielu) {
    // Both sides of 0 are computed; each gives 0 on the other one, the lower by a factor.
    // exp(x) - 1 is 2 t / (1 - t) with t = tanh(x / 2), which is right for small x, too.
    const F one = V::set1(1.0f);
    const F above = V::max(V::zero(), x), below = V::min(V::zero(), x);
    const F is_below = V::sub(one, V::min(one, V::mul(V::set1(1e30f), above)));
    const F t = tanh16<V>(V::mul(V::set1(0.5f), V::min(V::set1(a.limit), below)));
    const F grown = V::div(V::add(t, t), V::sub(one, t));
    const F fall = V::mul(V::mul(V::set1(a.fall), is_below), V::sub(grown, below));
    return V::fma(V::set1(a.slope), x, V::fma(V::mul(V::set1(a.rise), above), above, fall));
  } else if constexpr (function == UnitFunction::Clamp) {
    return V::max(V::set1(-a.limit), V::min(V::set1(a.limit), x));
  } else {
    static_assert(function == UnitFunction::Tanh);
    return tanh16<V>(x);
  }
}

template <class V, UnitFunction function>
KTX_INLINE void unit_rows(const RowsArgs& a) {
  const ActivateAttrs attrs = *std::get_if<ActivateAttrs>(&a.attrs);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* x = a.in[0].data + t * a.in[0].stride;
    float* y = a.y + t * a.y_stride;
    int64_t i = 0;
    for (; i + 16 <= a.width; i += 16) V::store(y + i, unit16<V, function>(attrs, V::load(x + i)));
    const int64_t n = a.width - i;
    if (n > 0) V::store_part(y + i, n, unit16<V, function>(attrs, V::load_part(x + i, n)));
  }
}

// One number at a time, as a token has few.
inline void signed_root_rows(const RowsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* const in = a.in[0].data + t * a.in[0].stride;
    float* const y = a.y + t * a.y_stride;
    for (int64_t i = 0; i < a.width; ++i) {
      const float x = in[i], size = __builtin_fabsf(x);
      const float root = __builtin_sqrtf(size < kLeastRooted ? kLeastRooted : size);
      y[i] = x < 0 ? -root : x == 0 ? 0.0f : root;
    }
  }
}

template <class V>
void activate(const RowsArgs& a) {
  switch (static_cast<UnitFunction>(std::get_if<ActivateAttrs>(&a.attrs)->function)) {
    case UnitFunction::Silu:
      return unit_rows<V, UnitFunction::Silu>(a);
    case UnitFunction::GeluTanh:
      return unit_rows<V, UnitFunction::GeluTanh>(a);
    case UnitFunction::GeluErf:
      return unit_rows<V, UnitFunction::GeluErf>(a);
    case UnitFunction::Relu:
      return unit_rows<V, UnitFunction::Relu>(a);
    case UnitFunction::ReluSquared:
      return unit_rows<V, UnitFunction::ReluSquared>(a);
    case UnitFunction::Tanh:
      return unit_rows<V, UnitFunction::Tanh>(a);
    case UnitFunction::Xielu:
      return unit_rows<V, UnitFunction::Xielu>(a);
    case UnitFunction::Clamp:
      return unit_rows<V, UnitFunction::Clamp>(a);
    case UnitFunction::SignedRoot:
      return signed_root_rows(a);
  }
}

template <class V>
void add(const RowsArgs& a) {
  each_row<V>(
      a,
      [](typename V::F x, typename V::F b) __attribute__((always_inline)) { return V::add(x, b); });
}

}  // namespace
}  // namespace ktx::kernels
