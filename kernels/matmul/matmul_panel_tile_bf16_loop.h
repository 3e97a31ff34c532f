// Weights in panels of 16 rows times BF16 activations in the order of a matrix tile, over a
// vector policy without tiles (matmul_panel_tile_bf16_amx.cc has them).
//
// A lane is a row, and an output has one sum. For each 32 columns in rising order
//
//   even = fma(w[30], x[30], ... fma(w[2], x[2], fma(w[0], x[0], 0)))       16 products
//   odd  = fma(w[31], x[31], ... fma(w[3], x[3], fma(w[1], x[1], 0)))
//   sum  = sum + (even + odd)
//
// each step rounded to nearest even, subnormals as zeros before and after it: what TDPBF16PS
// does. w is the upper half of what panel_bf16_weights.h says.
//
// Included by matmul_panel_tile_bf16_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul_panel_loop.h"
#include "kernels/matmul/panel_bf16_weights.h"
#include "kernels/simd/flush_subnormals.h"
#include "lib/formats/act_bf16.h"

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

// The upper half of a float.
template <class V>
KTX_INLINE typename V::F cut_bf16(typename V::F f) {
  return V::as_float(V::and32(V::as_int(f), static_cast<int32_t>(0xffff0000)));
}

static inline const uint16_t* bf16_row(const MatmulArgs& a, int64_t i) {
  return reinterpret_cast<const uint16_t*>(a.xq + x_row(a, i) * a.xq_stride);
}

KTX_ALWAYS_INLINE static inline float from_bf16(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}

// sums[t] += the products of 32 columns with kTokens tokens; x[t]: their activations.
template <class V, int kTokens>
KTX_INLINE void add_bf16_block(const float* weights, const uint16_t* const* x, int64_t column,
                               float* sums) {
  typename V::F even[kTokens], odd[kTokens];
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) even[t] = odd[t] = V::zero();
  for (int k = 0; k < 32; k += 2) {
    const typename V::F w0 = V::load(weights + kPanelRows * k);
    const typename V::F w1 = V::load(weights + kPanelRows * (k + 1));
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      even[t] = V::fma(w0, V::set1(from_bf16(x[t][column + k])), even[t]);
      odd[t] = V::fma(w1, V::set1(from_bf16(x[t][column + k + 1])), odd[t]);
    }
  }
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    float* sum = sums + t * kPanelRows;
    V::store(sum, V::add(V::load(sum), V::add(even[t], odd[t])));
  }
}

// Tokens that meet a panel's 32 columns once they are unpacked.
constexpr int64_t kBf16Tokens = 64;

template <class V, DType kType>
void panel_product_tile_bf16(const MatmulArgs& a) {
  using Codes = Bf16Codes16<V, kType>;
  const FlushSubnormals flush(true);
  alignas(64) float sums[kBf16Tokens * kPanelRows];
  alignas(64) float weights[32 * kPanelRows];
  const uint16_t* x[kBf16Tokens];
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (int64_t i = 0; i < a.tokens; i += kBf16Tokens) {
    const int64_t tokens = a.tokens - i < kBf16Tokens ? a.tokens - i : kBf16Tokens;
    for (int64_t t = 0; t < tokens; ++t) x[t] = bf16_row(a, i + t);
    for (int64_t p = a.row_begin / kPanelRows; p < end; ++p) {
      const PanelPlace<Codes> panel(a, p);
      const uint8_t* words = panel.words;
      const uint8_t* rest = panel.rest;
      __builtin_memset(sums, 0, static_cast<size_t>(tokens * kPanelRows) * sizeof(float));
      for (int64_t first = 0; first < a.w.cols; first += Codes::kUnit) {
        Codes::unit(words, rest,
                    [&](int block, const typename V::I(&codes)[8], typename V::F s0,
                        typename V::F s1, typename V::F m, typename V::I steps = V::zero_i(),
                        typename V::F step = V::zero()) KTX_ALWAYS_INLINE {
                      bf16_words<V, Codes, kType>(
                          block, codes, s0, s1, m, steps, step,
                          [&](auto w, typename V::F f0, typename V::F f1, typename V::F f2,
                              typename V::F f3) KTX_ALWAYS_INLINE {
                            float* at = weights + 4 * kPanelRows * w.value;
                            V::store(at, cut_bf16<V>(f0));
                            V::store(at + kPanelRows, cut_bf16<V>(f1));
                            V::store(at + 2 * kPanelRows, cut_bf16<V>(f2));
                            V::store(at + 3 * kPanelRows, cut_bf16<V>(f3));
                          });
                      const int64_t column = first + 32 * block;
                      int64_t t = 0;
                      for (; t + 4 <= tokens; t += 4) {
                        add_bf16_block<V, 4>(weights, x + t, column, sums + t * kPanelRows);
                      }
                      for (; t < tokens; ++t) {
                        add_bf16_block<V, 1>(weights, x + t, column, sums + t * kPanelRows);
                      }
                    });
        words += Codes::kWords * 64;
        rest += Codes::kRest;
      }
      for (int64_t t = 0; t < tokens; ++t) {
        store_rows<V>(a, i + t, p, V::load(sums + t * kPanelRows));
      }
    }
  }
}

template <class V>
MatmulFn panel_tile_bf16_of(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return panel_product_tile_bf16<V, DType::id>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace ktx::kernels
