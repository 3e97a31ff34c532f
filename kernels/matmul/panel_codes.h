// From a panel (panel16.h) to codes and scales in registers, one struct a format.
//
//   PanelCodes<V, DType::Q4_K>::unit(words, rest, sink);
//
// calls for each 32 columns of the unit, in rising order,
//
//   sink(block, codes, s0, s1, m[, steps, step])
//
// codes[w]: columns 4 w .. 4 w + 3 of 16 rows, as bytes 0 .. kLargest, kOffset more than
// the code of int8_form.h; s0: the scale of each row (of the first 16 columns where
// kGroup is 16, then s1: of the others); m: its minimum where kMin is Float. Where it is
// Steps, minima are 6-bit numbers times a float: a block brings the two numbers of its
// kStepBlocks blocks, in the halves of `steps`, and an eighth of the float, `step`.
// Scales and minima are bit for bit those of int8_form.h. A unit is kUnit columns: kWords
// registers of words, and kRest bytes of the panel's end (16 rows together).
//
// V is PanelAvx2 or PanelAvx512. Private to kernels/matmul/*_<isa>.cc.
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

// Code books, with the offset that makes them unsigned.
constexpr int kIq4Offset = 128, kMxfp4Offset = 12;
struct CodeBook {
  alignas(16) uint8_t at[16];
  constexpr CodeBook(const int8_t (&values)[16], int offset) : at() {
    for (int i = 0; i < 16; ++i) at[i] = static_cast<uint8_t>(values[i] + offset);
  }
};
constexpr CodeBook kIq4Book(kIq4Values, kIq4Offset), kMxfp4Book(kMxfp4Doubled, kMxfp4Offset);

template <class V>
KTX_INLINE void book_codes(const CodeBook& book, const uint8_t* words, typename V::I (&codes)[8]) {
  nibbles<V>(words, codes);
  each<8>([&](auto w) KTX_ALWAYS_INLINE { codes[w.value] = V::lookup(book.at, codes[w.value]); });
}

template <class V>
struct PanelCodes<V, DType::IQ4_NL> {
  static constexpr int kUnit = 32, kWords = 4, kRest = 32, kGroup = 32, kOffset = kIq4Offset;
  static constexpr int kLargest = 255;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    typename V::I codes[8];
    book_codes<V>(kIq4Book, words, codes);
    const typename V::F scale = rest_scales<V>(rest);
    sink(0, codes, scale, scale, scale);
  }
};

template <class V>
struct PanelCodes<V, DType::MXFP4> {
  static constexpr int kUnit = 32, kWords = 4, kRest = 16, kGroup = 32, kOffset = kMxfp4Offset;
  static constexpr int kLargest = 31;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t* rest, Sink sink) {
    typename V::I codes[8];
    book_codes<V>(kMxfp4Book, words, codes);
    // 2^(e - 128): exponent bits e - 1, or the subnormals 2^-128 and 2^-127.
    const typename V::I e = V::load_bytes16(rest);
    const typename V::I small = V::add32(V::template sll32<21>(V::min32(e, 1)), 1 << 21);
    const typename V::F scale =
        V::as_float(V::max32(V::template sll32<23>(V::add32(e, -1)), small));
    sink(0, codes, scale, scale, scale);
  }
};

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
  // Of block i of a half, from the words that hold its bits.
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

template <class V>
struct PanelCodes<V, DType::IQ4_XS> {
  static constexpr int kUnit = 256, kWords = 34, kRest = 0, kGroup = 32, kOffset = kIq4Offset;
  static constexpr int kLargest = 255;
  static constexpr PanelMin kMin = PanelMin::None;
  template <class Sink>
  KTX_INLINE void unit(const uint8_t* words, const uint8_t*, Sink sink) {
    using I = typename V::I;
    const I head = V::load64(words), low = V::load64(words + 64);
    const typename V::F d = V::low_halves(head);
    each<8>([&](auto block) KTX_ALWAYS_INLINE {
      constexpr int b = decltype(block)::value;
      I codes[8];
      book_codes<V>(kIq4Book, words + 64 * (2 + 4 * b), codes);
      // Four low bits of the scale, then two from the head's upper half.
      const I four = V::and32(V::template srl32<4 * b>(low), 15);
      const I two = V::and32(V::template srl32<12 + 2 * b>(head), 48);
      const typename V::F scale = V::mul(d, V::to_float(V::add32(V::or_i(four, two), -32)));
      sink(b, codes, scale, scale, d);
    });
  }
};

}  // namespace
}  // namespace ktx::kernels
