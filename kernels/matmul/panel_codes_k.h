// Codes of panels (panel_codes.h): Q4_K, Q5_K, Q6_K.
#pragma once

#include "kernels/matmul/panel_code.h"

namespace ktx::kernels {
namespace {

// 6-bit scales and minima of Q4_K and Q5_K, from words 0 to 3 of a block. Groups 0..3
// and 4..7 are bytes of one word each.
template <class V>
struct KScales {
  typename V::F d, step;  // an eighth of dmin
  typename V::I scales[2], mins[2];

  KTX_ALWAYS_INLINE explicit KScales(const uint8_t* words) {
    using I = typename V::I;
    const I halves = V::load64(words);
    d = V::low_halves(halves);
    step = V::mul(V::high_halves(halves), V::set1(0.125f));
    const I a = V::load64(words + 64), b = V::load64(words + 128), c = V::load64(words + 192);
    scales[0] = V::and8(a, 63);
    mins[0] = V::and8(b, 63);
    scales[1] = V::and8(V::pick(c, V::template srl16<2>(a), 15), 63);
    mins[1] = V::and8(V::pick(V::template srl16<4>(c), V::template srl16<2>(b), 15), 63);
  }
  template <int g>
  KTX_ALWAYS_INLINE typename V::F scale() const {
    return V::mul(d, number<g % 4>(scales[g / 4]));
  }
  // Minima of groups g and g + 1, in the halves of a word; g is even.
  template <int g>
  KTX_ALWAYS_INLINE typename V::I min_steps() const {
    const typename V::I two = V::template srl32<8 * (g % 4)>(mins[g / 4]);
    return V::or_i(V::and32(two, 0x3F), V::and32(V::template sll32<8>(two), 0x3F0000));
  }

 private:
  template <int byte>
  KTX_INLINE typename V::F number(typename V::I v) {
    if constexpr (byte == 3) return V::to_float(V::template srl32<24>(v));
    return V::to_float(V::and32(V::template srl32<8 * byte>(v), 63));
  }
};

template <class V>
struct PanelCodes<V, DType::Q4_K> {
  static constexpr int kUnit = 256, kWords = 36, kRest = 0, kGroup = 32, kOffset = 0, kLargest = 15;
  static constexpr PanelMin kMin = PanelMin::Steps;
  static constexpr int kStepBlocks = 2;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t*, Sink sink) {
    const KScales<V> k(words);
    each<4>([&](auto pair) KTX_ALWAYS_INLINE {
      constexpr int p = decltype(pair)::value;
      typename V::I packed[8], codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        packed[w.value] = V::load64(words + 64 * (4 + 8 * p + w.value));
        codes[w.value] = V::and8(packed[w.value], 15);
      });
      const typename V::F first = k.template scale<2 * p>();
      sink(2 * p, codes, first, first, first, k.template min_steps<2 * p>(), k.step);
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        codes[w.value] = V::and8(V::template srl16<4>(packed[w.value]), 15);
      });
      const typename V::F second = k.template scale<2 * p + 1>();
      sink(2 * p + 1, codes, second, second, second, k.template min_steps<2 * p>(), k.step);
    });
  }
};

// Words in a panel: 4 of scales, 8 pairs of high and low bits, 24 more of low ones.
template <class V>
struct PanelCodes<V, DType::Q5_K> {
  static constexpr int kUnit = 256, kWords = 44, kRest = 0, kGroup = 32, kOffset = 0, kLargest = 31;
  static constexpr PanelMin kMin = PanelMin::Steps;
  static constexpr int kStepBlocks = 2;
  // Bit g of every byte to bit 4.
  template <int g>
  KTX_INLINE typename V::I fifth(typename V::I high) {
    if constexpr (g <= 4) return V::template sll16<4 - g>(high);
    return V::template srl16<(g > 4 ? g - 4 : 0)>(high);
  }
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t*, Sink sink) {
    const KScales<V> k(words);
    each<8>([&](auto group) KTX_ALWAYS_INLINE {
      constexpr int g = decltype(group)::value;
      typename V::I codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        const typename V::I high = V::load64(words + 64 * (4 + 2 * w.value));
        constexpr int at =
            g < 2 ? 5 + 2 * decltype(w)::value : 12 + 8 * (g / 2) + decltype(w)::value;
        typename V::I low = V::load64(words + 64 * at);
        if constexpr (g % 2 == 1) low = V::template srl16<4>(low);
        codes[w.value] = V::and8(V::pick(low, fifth<g>(high), 15), 31);
      });
      const typename V::F scale = k.template scale<g>();
      sink(g, codes, scale, scale, scale, k.template min_steps<g / 2 * 2>(), k.step);
    });
  }
};

// Words in a panel, for each half of the columns: one of scales, 8 pairs of high and low
// bits, 8 more of low ones, one of scales: in the order of their first use (panel16.cc).
template <class V>
struct PanelCodes<V, DType::Q6_K> {
  static constexpr int kUnit = 256, kWords = 52, kRest = 32, kGroup = 16, kOffset = 32;
  static constexpr int kLargest = 63;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    using I = typename V::I;
    const typename V::F d = rest_scales<V>(rest);
    each<8>([&](auto block) KTX_ALWAYS_INLINE {
      constexpr int b = decltype(block)::value, h = b / 4, i = b % 4;
      const uint8_t* half = words + 64 * (26 * h + 1);
      I codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        constexpr int at = i % 2 == 0 ? 2 * decltype(w)::value + 1 : 16 + decltype(w)::value;
        I low = V::load64(half + 64 * at);
        I top = V::load64(half + 64 * 2 * w.value);
        if constexpr (i >= 2) low = V::template srl16<4>(low);
        if constexpr (i < 2) top = V::template sll16<4 - 2 * (i % 2)>(top);
        if constexpr (i == 3) top = V::template srl16<2>(top);
        codes[w.value] = V::and8(V::pick(low, top, 15), 63);
      });
      constexpr int g = 2 * b;
      const I scales = V::load64(half + 64 * (i < 2 ? -1 : 24));
      sink(b, codes, V::mul(d, V::to_float(V::template signed_byte<g % 4>(scales))),
           V::mul(d, V::to_float(V::template signed_byte<g % 4 + 1>(scales))), d);
    });
  }
};

}  // namespace
}  // namespace ktx::kernels
