// How float weights in panels and activations become the operands of products, one struct
// a form, over a vector policy (simd/README.md). A lane is a row.
//
//   PanelForm<V, DType::F16>     16 halves of a column become 16 floats; an activation is
//                                the same float in every lane
//   RoundedPanelForm<V>          BF16, activations rounded to BF16: pairs of columns, the
//                                odd one first, as vdpbf16ps takes them
//
// A form cuts the columns into units of kCols columns, kBytes bytes of 16 rows
// (panel16_floats.h), and a unit into kParts operands. An output has one sum:
//
//   for each unit, for each part p:  sum = Math::fma(part<p>(weights), act<p>(x), sum)
//
// so that nothing is ever summed across lanes. `activations` turns columns into what act
// reads, kActs elements a unit, the last unit filled up with zeros. An odd last column of
// BF16, which has no pair, comes as a unit whose second column is zero.
//
// Why RoundedPanelForm has the bits of vdpbf16ps: float_forms.h.
// Included by matmul_panel_float_*_<isa>.cc only.
#pragma once

#include <cstdint>

#include "lib/formats/dtype.h"

namespace ktx::kernels {
namespace {

// 16 rows times one column, in floats.
template <class V>
struct LaneMath {
  using W = typename V::F;
  using Act = typename V::F;
  KTX_INLINE typename V::F fma(W w, Act x, typename V::F sum) { return V::fma(w, x, sum); }
};

// Activations as they are, one an element.
template <class V, int kColumns>
struct FloatActivations {
  using Math = LaneMath<V>;
  using Elem = float;
  static constexpr int kCols = kColumns, kParts = kColumns, kActs = kColumns;
  static constexpr bool kFlush = false;
  static constexpr bool kPlain = kColumns == 1;  // they can stay where they are
  template <int p>
  KTX_INLINE typename V::F act(const Elem* x) {
    return V::set1(x[p]);
  }
  // (A plain copy would become a string instruction, which takes a while to start.)
  static void activations(const float* x, int64_t count, Elem* out) {
    int64_t k = 0;
    for (; k + 16 <= count; k += 16) V::store(out + k, V::load(x + k));
    for (; k < count; ++k) out[k] = x[k];
    for (; k % kCols != 0; ++k) out[k] = 0;
  }
};

template <class V, DType kType>
struct PanelForm;

template <class V>
struct PanelForm<V, DType::F32> : FloatActivations<V, 1> {
  static constexpr int kBytes = 64;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return V::load_floats(w);
  }
};

template <class V>
struct PanelForm<V, DType::F16> : FloatActivations<V, 1> {
  static constexpr int kBytes = 32;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return V::load_half(reinterpret_cast<const uint16_t*>(w));
  }
};

template <class V>
struct PanelForm<V, DType::BF16> : FloatActivations<V, 2> {
  static constexpr int kBytes = 64;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return p == 0 ? V::even_bf16(w) : V::odd_bf16(w);
  }
};

template <class V>
struct RoundedPanelForm : FloatActivations<V, 2> {
  static constexpr int kBytes = 64;
  static constexpr bool kFlush = true;
  template <int p>
  KTX_INLINE typename V::F part(const uint8_t* w) {
    return p == 0 ? V::odd_bf16(w) : V::even_bf16(w);
  }
  template <int p>
  KTX_INLINE typename V::F act(const float* x) {
    return V::set1(x[1 - p]);
  }
  static void activations(const float* x, int64_t count, float* out) {
    int64_t k = 0;
    for (; k + 16 <= count; k += 16) V::store(out + k, V::round_bf16(V::load(x + k)));
    alignas(64) float rest[16] = {};
    if (k == count) return;
    __builtin_memcpy(rest, x + k, static_cast<size_t>(count - k) * sizeof(float));
    V::store(rest, V::round_bf16(V::load(rest)));
    __builtin_memcpy(out + k, rest, static_cast<size_t>((count - k + 1) / 2 * 2) * sizeof(float));
  }
};

}  // namespace
}  // namespace ktx::kernels
