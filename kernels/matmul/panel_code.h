// What the structs of panel_codes.h share: the template itself, loops with constant indices,
// nibbles and half scales.
#pragma once

#include "lib/formats/blocks.h"
#include "lib/formats/dtype.h"

#define KTX_ALWAYS_INLINE __attribute__((always_inline))

namespace ktx::kernels {
namespace {

// f(Int<0>), ... f(Int<n - 1>): a loop whose index is a constant.
template <int kValue>
struct Int {
  static constexpr int value = kValue;
};
template <int n, int i = 0, class Fn>
KTX_INLINE void each(Fn f) {
  if constexpr (i < n) {
    f(Int<i>());
    each<n, i + 1>(f);
  }
}

enum class PanelMin { None, Float, Steps };

template <class V, DType kType>
struct PanelCodes;

// The half scales of 16 rows that stand in the rest of 32 columns.
template <class V>
KTX_INLINE typename V::F rest_scales(const uint8_t* rest) {
  return V::load_half(reinterpret_cast<const uint16_t*>(rest));
}

// Nibbles of 16 bytes: columns 0..15 in the low ones, 16..31 in the high ones.
template <class V>
KTX_INLINE void nibbles(const uint8_t* words, typename V::I (&codes)[8]) {
  each<4>([&](auto w) KTX_ALWAYS_INLINE {
    const typename V::I packed = V::load64(words + 64 * w.value);
    codes[w.value] = V::and8(packed, 15);
    codes[w.value + 4] = V::and8(V::template srl16<4>(packed), 15);
  });
}

}  // namespace
}  // namespace ktx::kernels
