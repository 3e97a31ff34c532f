// From a panel to BF16 weights, as floats whose upper halves they are (panel_bf16_weights.h).
//
//   bf16_unit<V, DType::Q4_K>(words, rest, sink);
//
// calls for the blocks of 32 columns of a unit, in rising order, one or two side by side,
//
//   sink.template begin<kCount>(block)
//   sink.template take<slot, w>(block, f0, f1, f2, f3)   of block + slot: columns 4 w .. 4 w + 3
//   sink.template end<kCount>(block)
//
// with w rising from 0 to 7 and slot from 0 to kCount - 1. Private to kernels/matmul/*_<isa>.cc.
#pragma once

#include "kernels/matmul/panel_bf16_weights.h"
#include "kernels/matmul/panel_codes.h"

namespace ktx::kernels {
namespace {

// V without the mask of codes, which bf16_weight has of its own: up to a tenth of unpacking.
template <class V, int kLargest>
struct UnmaskedCodes : V {
  KTX_INLINE typename V::I and8(typename V::I v, int mask) {
    return mask == kLargest ? v : V::and8(v, mask);
  }
};
template <class V, DType kType>
using Bf16Codes16 = PanelCodes<UnmaskedCodes<V, PanelCodes<V, kType>::kLargest>, kType>;

// What a group's codes are multiplied with and what is added: S and C.
template <class V>
struct Bf16Scale {
  typename V::F s, c;
};

// The minimum of part `part` of block `block` of a unit, from what its sink is called with.
template <int part, class V, class Codes>
KTX_INLINE typename V::F float_min(int block, typename V::F m, typename V::I steps,
                                   typename V::F step) {
  if constexpr (Codes::kMin == PanelMin::Steps) {
    const bool second = Codes::kStepBlocks == 2 ? block % 2 == 1 : part == 1;
    const typename V::I low = V::and32(steps, 0xFFFF), high = V::template srl32<16>(steps);
    return V::mul(V::mul(step, V::set1(8.0f)), V::to_float(second ? high : low));
  }
  return m;
}

template <class V, class Codes, DType kType>
KTX_INLINE Bf16Scale<V> bf16_scale(typename V::F scale, typename V::F min) {
  constexpr Bf16Codes kForm = bf16_codes(kType);
  static_assert(kForm.offset == Codes::kOffset && Codes::kLargest < (kForm.bits == 7 ? 128 : 256));
  constexpr float kOne = static_cast<float>(1 << kForm.bits);
  const typename V::F s = V::mul(scale, V::set1(kBf16Up));
  const typename V::F raise = V::set1(-(kOne + static_cast<float>(kForm.offset)));
  if constexpr (Codes::kMin != PanelMin::None) {
    return {V::mul(s, V::set1(kOne)), V::fma(s, raise, V::mul(min, V::set1(-kBf16Up)))};
  }
  return {V::mul(s, V::set1(kOne)), V::mul(s, raise)};
}

// f of column `column` of a word of four.
template <class V, int kLargest, int kBits, int column>
KTX_INLINE typename V::F bf16_weight(typename V::I word, const Bf16Scale<V>& by) {
  constexpr int kAt = 23 - kBits, kShift = kAt - 8 * column;
  // All bits that a code of this size may have.
  constexpr int kMask = (kLargest <= 3 ? 3 : kLargest) << kAt;
  if constexpr (kShift > 0) word = V::template sll32<kShift>(word);
  if constexpr (kShift < 0) word = V::template srl32<-kShift>(word);
  const typename V::I one_and_code = V::or_masked(word, kMask, 0x3f800000);
  return V::fma(V::as_float(one_and_code), by.s, by.c);
}

// sink(w, f0, f1, f2, f3) for the eight words of 32 columns in rising order: the floats of
// columns 4 w .. 4 w + 3.
template <class V, class Codes, DType kType, class Sink>
KTX_INLINE void bf16_words(int block, const typename V::I (&codes)[8], typename V::F s0,
                           typename V::F s1, typename V::F m, typename V::I steps,
                           typename V::F step, Sink sink) {
  constexpr int kBits = bf16_codes(kType).bits, kMask = Codes::kLargest;
  const typename V::F m0 = float_min<0, V, Codes>(block, m, steps, step);
  const typename V::F m1 = float_min<1, V, Codes>(block, m, steps, step);
  const Bf16Scale<V> first = bf16_scale<V, Codes, kType>(s0, m0);
  const Bf16Scale<V> second = Codes::kGroup == 16 ? bf16_scale<V, Codes, kType>(s1, m1) : first;
  each<8>([&](auto word) KTX_ALWAYS_INLINE {
    constexpr int w = decltype(word)::value;
    const Bf16Scale<V>& by = w < 4 ? first : second;
    sink(word, bf16_weight<V, kMask, kBits, 0>(codes[w], by),
         bf16_weight<V, kMask, kBits, 1>(codes[w], by),
         bf16_weight<V, kMask, kBits, 2>(codes[w], by),
         bf16_weight<V, kMask, kBits, 3>(codes[w], by));
  });
}

// ---- Q4_K: two blocks side by side, whose codes are the nibbles of the same words

// S, and C for each place in a mantissa.
template <class V>
struct NibbleScale {
  typename V::F s, c7, c11, c15;

  KTX_ALWAYS_INLINE NibbleScale(typename V::F scale, typename V::F min) {
    const typename V::F up = V::mul(scale, V::set1(kBf16Up)), m = V::mul(min, V::set1(-kBf16Up));
    s = V::mul(up, V::set1(128.0f));
    c7 = V::fma(up, V::set1(-128.0f), m);
    c11 = V::fma(up, V::set1(-2048.0f), m);
    c15 = V::fma(up, V::set1(-32768.0f), m);
  }
  // The weight of the nibble in those bits of `word` where codes of kBits bits stand. The one
  // before it is 2^(kBits - 7), so that a step of the code is 2^-7 and S is the same for all.
  template <int kBits>
  KTX_ALWAYS_INLINE typename V::F weight(typename V::I word) const {
    constexpr int kOne = 0x3f800000 + ((kBits - 7) << 23);
    const typename V::I one_and_code = V::or_masked(word, 15 << (23 - kBits), kOne);
    return V::fma(V::as_float(one_and_code), s, kBits == 7 ? c7 : kBits == 11 ? c11 : c15);
  }
};

template <class V, class Sink>
KTX_INLINE void q4k_bf16_unit(const uint8_t* words, Sink& sink) {
  constexpr auto kBits = [](int block, int column) {
    return bf16_bits(DType::Q4_K, 32 * block + column);
  };
  const KScales<V> k(words);
  const typename V::F step = V::mul(k.step, V::set1(8.0f));
  each<4>([&](auto pair) KTX_ALWAYS_INLINE {
    constexpr int p = decltype(pair)::value, block = 2 * p;
    const typename V::I steps = k.template min_steps<block>();
    const typename V::F m0 = V::mul(step, V::to_float(V::and32(steps, 0xFFFF)));
    const typename V::F m1 = V::mul(step, V::to_float(V::template srl32<16>(steps)));
    const NibbleScale<V> low(k.template scale<block>(), m0);
    const NibbleScale<V> high(k.template scale<block + 1>(), m1);
    sink.template begin<2>(block);
    each<8>([&](auto word) KTX_ALWAYS_INLINE {
      constexpr int w = decltype(word)::value;
      const typename V::I as_is = V::load64(words + 64 * (4 + 8 * p + w));
      const typename V::I left = V::template sll32<12>(as_is);
      const typename V::I right = V::template srl32<12>(as_is);
      sink.template take<0, w>(
          block, low.template weight<kBits(0, 0)>(left), low.template weight<kBits(0, 1)>(as_is),
          low.template weight<kBits(0, 2)>(as_is), low.template weight<kBits(0, 3)>(right));
      sink.template take<1, w>(
          block, high.template weight<kBits(1, 0)>(left), high.template weight<kBits(1, 1)>(as_is),
          high.template weight<kBits(1, 2)>(right), high.template weight<kBits(1, 3)>(right));
    });
    sink.template end<2>(block);
  });
}

// ---- any format

template <class V, DType kType, class Sink>
KTX_INLINE void bf16_unit(const uint8_t* words, const uint8_t* rest, Sink& sink) {
  if constexpr (kType == DType::Q4_K) {
    q4k_bf16_unit<V>(words, sink);
  } else {
    Bf16Codes16<V, kType>::unit(
        words, rest,
        [&](int block, const typename V::I(&codes)[8], typename V::F s0, typename V::F s1,
            typename V::F m, typename V::I steps = V::zero_i(),
            typename V::F step = V::zero()) KTX_ALWAYS_INLINE {
          sink.template begin<1>(block);
          bf16_words<V, Bf16Codes16<V, kType>, kType>(
              block, codes, s0, s1, m, steps, step,
              [&](auto word, typename V::F f0, typename V::F f1, typename V::F f2, typename V::F f3)
                  KTX_ALWAYS_INLINE {
                    sink.template take<0, decltype(word)::value>(block, f0, f1, f2, f3);
                  });
          sink.template end<1>(block);
        });
  }
}

}  // namespace
}  // namespace ktx::kernels
