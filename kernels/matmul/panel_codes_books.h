// Codes of panels (panel_codes.h) that are looked up in a book: IQ4_NL, MXFP4, IQ4_XS.
#pragma once

#include "kernels/matmul/panel_code.h"

namespace ktx::kernels {
namespace {

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
