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
#include "kernels/matmul/panel_bf16_unit.h"
#include "kernels/simd/flush_subnormals.h"
#include "lib/formats/act_bf16.h"

namespace ktx::kernels {
namespace {

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

// The same for any number of tokens. A function of its own, which all formats have in common:
// inlined, it would stand in each of a unit's eight blocks.
template <class V>
__attribute__((noinline)) void add_bf16_tokens(const float* weights, const uint16_t* const* x,
                                               int64_t column, int64_t tokens, float* sums) {
  int64_t t = 0;
  for (; t + 4 <= tokens; t += 4) {
    add_bf16_block<V, 4>(weights, x + t, column, sums + t * kPanelRows);
  }
  for (; t + 2 <= tokens; t += 2) {
    add_bf16_block<V, 2>(weights, x + t, column, sums + t * kPanelRows);
  }
  if (t < tokens) add_bf16_block<V, 1>(weights, x + t, column, sums + t * kPanelRows);
}

// Tokens that meet a panel's 32 columns once they are unpacked.
constexpr int64_t kBf16Tokens = 64;

// What comes of a unit goes to `weights`, and from there to the sums of all tokens.
template <class V>
struct TokenBlocks {
  const uint16_t* const* x;
  int64_t first;  // column
  int64_t tokens;
  float (*weights)[32 * kPanelRows];
  float* sums;

  template <int kCount>
  KTX_ALWAYS_INLINE void begin(int /*block*/) {}
  template <int slot, int w>
  KTX_ALWAYS_INLINE void take(int /*block*/, typename V::F f0, typename V::F f1, typename V::F f2,
                              typename V::F f3) {
    float* at = weights[slot] + 4 * kPanelRows * w;
    V::store(at, cut_bf16<V>(f0));
    V::store(at + kPanelRows, cut_bf16<V>(f1));
    V::store(at + 2 * kPanelRows, cut_bf16<V>(f2));
    V::store(at + 3 * kPanelRows, cut_bf16<V>(f3));
  }
  template <int kCount>
  KTX_ALWAYS_INLINE void end(int block) {
    for (int slot = 0; slot < kCount; ++slot) {
      add_bf16_tokens<V>(weights[slot], x, first + 32 * (block + slot), tokens, sums);
    }
  }
};

template <class V, DType kType>
void panel_product_tile_bf16(const MatmulArgs& a) {
  using Codes = Bf16Codes16<V, kType>;
  const FlushSubnormals flush(true);
  alignas(64) float sums[kBf16Tokens * kPanelRows];
  alignas(64) float weights[2][32 * kPanelRows];
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
        TokenBlocks<V> blocks = {x, first, tokens, weights, sums};
        bf16_unit<V, kType>(words, rest, blocks);
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
