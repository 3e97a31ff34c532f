// Q6_K as a stream of words (Layout::Panel16Stream).
#pragma once

#include "kernels/matmul/panel_code.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

// Codes of weights in Layout::Panel16Stream: a unit is kHead bytes of half scales (16 rows)
// and then its words, each of which belongs to several blocks. unit() is that of PanelCodes,
// and meets words several times; by_words() meets each once, in rising order:
//
//   StreamCodes<V, DType::Q6_K>::by_words(words, dot, done);
//
// calls dot(block, w, codes), both Ints, for codes[w] of a block, and done(block, s0, s1)
// when a block has had all of them; the blocks of one half of the unit side by side.
template <class V, DType kType>
struct StreamCodes;

// For each half of the columns: scales of two blocks, eight times (two high bits of four
// blocks, four low ones of blocks 0 and 2, of blocks 1 and 3), scales of the other two.
template <class V>
struct StreamCodes<V, DType::Q6_K> {
  static constexpr int kUnit = 256, kWords = 52, kRest = 0, kGroup = 16, kOffset = 32;
  static constexpr int kHead = 32, kLargest = 63;
  static constexpr PanelMin kMin = PanelMin::None;

  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t*, Sink sink) {
    const typename V::F d = rest_scales<V>(words);
    each<8>([&](auto block) KTX_ALWAYS_INLINE {
      constexpr int b = decltype(block)::value, i = b % 4;
      const uint8_t* half = half_of(words, b / 4);
      typename V::I codes[8];
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        const uint8_t* three = half + 64 * (3 * w.value + 1);
        codes[w.value] = code<i>(V::load64(three), V::load64(three + 64 * (1 + i % 2)));
      });
      const typename V::I scales = V::load64(half + 64 * (i < 2 ? 0 : 25));
      sink(b, codes, scale<2 * i % 4>(d, scales), scale<2 * i % 4 + 1>(d, scales), d);
    });
  }

  template <class Dot, class Done>
  KTX_INLINE void by_words(const uint8_t* words, Dot dot, Done done) {
    const typename V::F d = rest_scales<V>(words);
    each<2>([&](auto which) KTX_ALWAYS_INLINE {
      constexpr int first = 4 * decltype(which)::value;
      const uint8_t* half = half_of(words, which.value);
      const typename V::I scales = V::load64(half);
      each<8>([&](auto w) KTX_ALWAYS_INLINE {
        const uint8_t* three = half + 64 * (3 * w.value + 1);
        const typename V::I high = V::load64(three);
        const typename V::I low[2] = {V::load64(three + 64), V::load64(three + 128)};
        each<4>([&](auto i) KTX_ALWAYS_INLINE {
          dot(Int<first + decltype(i)::value>(), w,
              code<decltype(i)::value>(high, low[i.value % 2]));
        });
      });
      const typename V::I others = V::load64(half + 64 * 25);
      each<4>([&](auto block) KTX_ALWAYS_INLINE {
        constexpr int i = decltype(block)::value;
        const typename V::I all = i < 2 ? scales : others;
        done(Int<first + i>(), scale<2 * i % 4>(d, all), scale<2 * i % 4 + 1>(d, all));
      });
    });
  }

 private:
  KTX_INLINE const uint8_t* half_of(const uint8_t* words, int half) {
    return words + kHead + 64 * 26 * half;
  }
  // The codes of block i of a half, from the words that hold its bits.
  template <int i>
  KTX_INLINE typename V::I code(typename V::I high, typename V::I low) {
    if constexpr (i >= 2) low = V::template srl16<4>(low);
    if constexpr (i < 2) high = V::template sll16<4 - 2 * i>(high);
    if constexpr (i == 3) high = V::template srl16<2>(high);
    return V::and8(V::pick(low, high, 15), 63);
  }
  template <int byte>
  KTX_INLINE typename V::F scale(typename V::F d, typename V::I scales) {
    return V::mul(d, V::to_float(V::template signed_byte<byte>(scales)));
  }
};

}  // namespace
}  // namespace ktx::kernels
