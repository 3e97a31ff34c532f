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
  if constexpr (activation == Activation::Silu) {
    return V::mul(V::mul(gate, sigmoid16<V>(gate)), up);
  } else if constexpr (activation == Activation::GeluTanh) {
    const typename V::F cube = V::mul(V::mul(V::mul(V::set1(0.044715f), gate), gate), gate);
    const typename V::F bent = V::mul(V::set1(1.5957691216f), V::add(gate, cube));
    return V::mul(V::mul(gate, sigmoid16<V>(bent)), up);
  } else if constexpr (activation == Activation::Sigmoid) {
    return V::mul(sigmoid16<V>(gate), up);
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
        return glu16<V, activation>(V::min(most, gate), V::max(least, V::min(most, up)));
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
