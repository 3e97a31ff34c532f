// Codes of panels (panel_codes.h): Q4_0, Q5_0, Q4_1, Q5_1, Q8_0.
#pragma once

#include "kernels/matmul/panel_code.h"

namespace ktx::kernels {
namespace {

template <class V>
struct PanelCodes<V, DType::Q4_0> {
  static constexpr int kUnit = 32, kWords = 4, kRest = 32, kGroup = 32, kOffset = 8, kLargest = 15;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    typename V::I codes[8];
    nibbles<V>(words, codes);
    const typename V::F scale = rest_scales<V>(rest);
    sink(0, codes, scale, scale, scale);
  }
};

template <class V>
struct PanelCodes<V, DType::Q5_0> {
  static constexpr int kUnit = 32, kWords = 5, kRest = 32, kGroup = 32, kOffset = 16, kLargest = 31;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    typename V::I codes[8];
    nibbles<V>(words + 64, codes);
    const typename V::I high = V::load64(words);
    each<8>([&](auto w) KTX_ALWAYS_INLINE {
      codes[w.value] = V::or_i(codes[w.value], V::template spread_bits<w.value>(high));
    });
    const typename V::F scale = rest_scales<V>(rest);
    sink(0, codes, scale, scale, scale);
  }
};

// A block with a scale and an offset in its first word: nibbles, the fifth bits before
// them where kFive. The minimum is the offset's negative.
template <class V, bool kFive>
struct OffsetCodes {
  static constexpr int kUnit = 32, kWords = kFive ? 6 : 5, kRest = 0, kGroup = 32, kOffset = 0;
  static constexpr int kLargest = kFive ? 31 : 15;
  static constexpr PanelMin kMin = PanelMin::Float;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t*, Sink sink) {
    const typename V::I head = V::load64(words);
    typename V::I codes[8];
    nibbles<V>(words + 64 * (kWords - 4), codes);
    if constexpr (kFive) {
      const typename V::I high = V::load64(words + 64);
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        codes[w.value] = V::or_i(codes[w.value], V::template spread_bits<w.value>(high));
      });
    }
    const typename V::F scale = V::low_halves(head);
    sink(0, codes, scale, scale, V::mul(V::high_halves(head), V::set1(-1.0f)));
  }
};
template <class V>
struct PanelCodes<V, DType::Q4_1> : OffsetCodes<V, false> {};
template <class V>
struct PanelCodes<V, DType::Q5_1> : OffsetCodes<V, true> {};

template <class V>
struct PanelCodes<V, DType::Q8_0> {
  static constexpr int kUnit = 32, kWords = 8, kRest = 32, kGroup = 32, kOffset = 128;
  static constexpr int kLargest = 255;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    typename V::I codes[8];
    each<8>([&](auto w) KTX_ALWAYS_INLINE {
      codes[w.value] = V::sub8(V::load64(words + 64 * w.value), 128);
    });
    const typename V::F scale = rest_scales<V>(rest);
    sink(0, codes, scale, scale, scale);
  }
};

}  // namespace
}  // namespace ktx::kernels
