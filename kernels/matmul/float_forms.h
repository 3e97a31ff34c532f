// How weights and activations become the operands of float products, one struct a form:
//
//   FloatForm<V, DType::F16>     16 halves become 16 floats; activations as they are
//   RoundedForm<V>               BF16, activations rounded to BF16: pairs of neighbours,
//                                the odd ones first, as vdpbf16ps takes them
//   DecodedForm<V>               anything else, by its RowDecoder
//
// A form cuts a row into units of kUnit elements, 64 bytes of packed weights, and a unit
// into kParts operands of Math::kStep elements. Sums take the parts in order, so a form
// fixes the order of accumulation:
//
//   for each unit, for each part p:  sum = Math::fma(part<p>(weights), x + p * kStep, sum)
//
// RoundedForm over floats gives the bits of vdpbf16ps: its two products are exact in F32
// and are added one after the other, each with one rounding, subnormals as zeros (found
// equal on Zen 4 for 32 M random sums; kFlush makes additions here do so too).
//
// Included by matmul_*_<isa>.cc only, through matmul_float_loop.h.
#pragma once

#include <cstdint>

#include "lib/formats/dtype.h"

namespace ktx::kernels {
namespace {

// 16 floats a step.
template <class V>
struct FloatMath {
  using Elem = float;
  using W = typename V::F;
  static constexpr int kStep = 16;
  KTX_INLINE W load(const Elem* p) { return V::load(p); }
  KTX_INLINE void store(Elem* p, W v) { V::store(p, v); }
  KTX_INLINE typename V::F fma(W w, W x, typename V::F sum) { return V::fma(w, x, sum); }
};

// Activations that go into products as they are.
template <class V>
struct PlainActivations {
  using Math = FloatMath<V>;
  static constexpr bool kPlain = true, kFlush = false;
  template <int p>
  KTX_INLINE typename V::F act_part(const float* x) {
    return V::load(x + 16 * p);
  }
};

template <class V, DType kType>
struct FloatForm;

template <class V>
struct FloatForm<V, DType::F32> : PlainActivations<V> {
  static constexpr int kUnit = 16, kParts = 1;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return V::load_floats(w);
  }
};

template <class V>
struct FloatForm<V, DType::F16> : PlainActivations<V> {
  static constexpr int kUnit = 32, kParts = 2;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return V::load_half(reinterpret_cast<const uint16_t*>(w) + 16 * p);
  }
};

template <class V>
struct FloatForm<V, DType::BF16> : PlainActivations<V> {
  static constexpr int kUnit = 32, kParts = 2;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return V::load_bf16(w + 32 * p);
  }
};

template <class V>
struct DecodedForm : PlainActivations<V> {
  static constexpr int kUnit = 32, kParts = 2;
};

template <class V>
struct RoundedForm {
  using Math = FloatMath<V>;
  static constexpr bool kPlain = false, kFlush = true;
  static constexpr int kUnit = 32, kParts = 2;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return p == 0 ? V::odd_bf16(w) : V::even_bf16(w);
  }
  template <int p>
  KTX_INLINE typename V::F act_part(const float* x) {
    const typename V::F a = V::round_bf16(V::load(x)), b = V::round_bf16(V::load(x + 16));
    return p == 0 ? V::odds(a, b) : V::evens(a, b);
  }
};

}  // namespace
}  // namespace ktx::kernels
