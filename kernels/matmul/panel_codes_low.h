// Codes of panels (panel_codes.h) of three bits and less: Q2_K, Q3_K, TQ1_0, TQ2_0.
#pragma once

#include "kernels/matmul/panel_code.h"

namespace ktx::kernels {
namespace {

// Words in a panel: one of a scale and a minimum for all, 4 of both for each group of 16,
// 16 of codes.
template <class V>
struct PanelCodes<V, DType::Q2_K> {
  static constexpr int kUnit = 256, kWords = 21, kRest = 0, kGroup = 16, kOffset = 0;
  static constexpr int kLargest = 3;
  static constexpr PanelMin kMin = PanelMin::Steps;
  static constexpr int kStepBlocks = 1;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t*, Sink sink) {
    using I = typename V::I;
    const I head = V::load64(words);
    const typename V::F d = V::low_halves(head);
    const typename V::F step = V::mul(V::high_halves(head), V::set1(0.125f));
    each<2>([&](auto half) KTX_ALWAYS_INLINE {
      constexpr int h = decltype(half)::value;
      I packed[8], codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        packed[w.value] = V::load64(words + 64 * (5 + 8 * h + w.value));
      });
      each<4>([&](auto quarter) KTX_ALWAYS_INLINE {
        constexpr int i = decltype(quarter)::value, at = 4 * h + i, byte = 2 * at % 4;
        each<8>([&](auto w) KTX_ALWAYS_INLINE {
          codes[w.value] = V::and8(V::template srl16<2 * i>(packed[w.value]), 3);
        });
        const I steps = V::load64(words + 64 * (1 + at / 2));
        // A byte for each 16 columns: the scale, then the minimum.
        const I two = V::template srl32<8 * byte>(steps);
        const I mins = V::or_i(V::and32(V::template srl32<4>(two), 15),
                               V::and32(V::template sll32<4>(two), 15 << 16));
        sink(at, codes, V::mul(d, nibble<2 * byte>(steps)), V::mul(d, nibble<2 * byte + 2>(steps)),
             d, mins, step);
      });
    });
  }

 private:
  template <int n>
  KTX_INLINE typename V::F nibble(typename V::I v) {
    if constexpr (n == 7) return V::to_float(V::template srl32<28>(v));
    return V::to_float(V::and32(V::template srl32<4 * n>(v), 15));
  }
};

// Words in a panel: 3 of scales, 8 pairs of high and low bits, 8 more of low ones.
template <class V>
struct PanelCodes<V, DType::Q3_K> {
  static constexpr int kUnit = 256, kWords = 27, kRest = 32, kGroup = 16, kOffset = 4;
  static constexpr int kLargest = 7;
  static constexpr PanelMin kMin = PanelMin::None;
  // Bit b of every byte to bit 2.
  template <int b>
  KTX_INLINE typename V::I third(typename V::I high) {
    if constexpr (b <= 2) return V::template sll16<2 - b>(high);
    return V::template srl16<(b > 2 ? b - 2 : 0)>(high);
  }
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    using I = typename V::I;
    const typename V::F d = rest_scales<V>(rest);
    const I a = V::load64(words), b = V::load64(words + 64), top = V::load64(words + 128);
    // Six bits of four groups each: a low or high nibble, then two bits of `top`.
    const I scales[4] = {
        V::and8(V::pick(a, V::template sll16<4>(top), 15), 63),
        V::and8(V::pick(b, V::template sll16<2>(top), 15), 63),
        V::and8(V::pick(V::template srl16<4>(a), top, 15), 63),
        V::and8(V::pick(V::template srl16<4>(b), V::template srl16<2>(top), 15), 63)};
    each<8>([&](auto block) KTX_ALWAYS_INLINE {
      constexpr int at = decltype(block)::value, half = at / 4, i = at % 4;
      I codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        constexpr int word = decltype(w)::value;
        constexpr int low_word = half == 0 ? 4 + 2 * word : 19 + word;
        const I low = V::template srl16<2 * i>(V::load64(words + 64 * low_word));
        const I high = third<at>(V::load64(words + 64 * (3 + 2 * word)));
        codes[word] = V::and8(V::pick(low, high, 3), 7);
      });
      constexpr int byte = 2 * at % 4;
      sink(at, codes, scale<byte>(d, scales[at / 2]), scale<byte + 1>(d, scales[at / 2]), d);
    });
  }

 private:
  template <int byte>
  KTX_INLINE typename V::F scale(typename V::F d, typename V::I six) {
    const typename V::I step = V::and32(V::template srl32<8 * byte>(six), 63);
    return V::mul(d, V::to_float(V::add32(step, -32)));
  }
};

template <class V>
struct PanelCodes<V, DType::TQ2_0> {
  static constexpr int kUnit = 256, kWords = 16, kRest = 32, kGroup = 32, kOffset = 1;
  static constexpr int kLargest = 3;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    const typename V::F scale = rest_scales<V>(rest);
    each<2>([&](auto half) KTX_ALWAYS_INLINE {
      constexpr int h = decltype(half)::value;
      typename V::I packed[8], codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        packed[w.value] = V::load64(words + 64 * (8 * h + w.value));
      });
      each<4>([&](auto quarter) KTX_ALWAYS_INLINE {
        constexpr int i = decltype(quarter)::value;
        each<8>([&](auto w) KTX_ALWAYS_INLINE {
          codes[w.value] = V::and8(V::template srl16<2 * i>(packed[w.value]), 3);
        });
        sink(4 * h + i, codes, scale, scale, scale);
      });
    });
  }
};

// A byte holds five trits, the first as its thirds of 256, the next ones those of the
// byte times 3, 9, 27, 81 modulo 256. 32 bytes have those of 5 x 32 columns, 16 bytes of
// 5 x 16, and 4 bytes four trits each of the last 16.
template <class V>
struct PanelCodes<V, DType::TQ1_0> {
  static constexpr int kUnit = 256, kWords = 13, kRest = 32, kGroup = 32, kOffset = 1;
  static constexpr int kLargest = 2;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    using I = typename V::I;
    const typename V::F scale = rest_scales<V>(rest);
    I bytes[8], codes[8];
    each<8>([&](auto w) KTX_ALWAYS_INLINE { bytes[w.value] = V::load64(words + 64 * w.value); });
    each<5>([&](auto part) KTX_ALWAYS_INLINE {
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        codes[w.value] = V::thirds(bytes[w.value]);
        bytes[w.value] = V::triple8(bytes[w.value]);
      });
      sink(part.value, codes, scale, scale, scale);
    });
    I four[4], last = V::load64(words + 64 * 12);
    each<4>([&](auto w)
                KTX_ALWAYS_INLINE { four[w.value] = V::load64(words + 64 * (8 + w.value)); });
    each<5>([&](auto trit) KTX_ALWAYS_INLINE {
      constexpr int t = decltype(trit)::value;
      each<4>([&](auto w) KTX_ALWAYS_INLINE {
        codes[t % 2 * 4 + w.value] = V::thirds(four[w.value]);
        four[w.value] = V::triple8(four[w.value]);
      });
      if constexpr (t % 2 == 1) sink(5 + t / 2, codes, scale, scale, scale);
    });
    each<4>([&](auto w) KTX_ALWAYS_INLINE {
      codes[4 + w.value] = V::thirds(last);
      last = V::triple8(last);
    });
    sink(7, codes, scale, scale, scale);
  }
};

}  // namespace
}  // namespace ktx::kernels
