// One token: the order of matmul_panel_tile_bf16_loop.h, with a panel's weights cut and multiplied
// in the registers in which they come to be.
//
// Tiles need a store of the weights and a load, and a product takes as long for one token as for
// 16; neither goes beside unpacking. 16 threads of Emerald Rapids, Q4_K from memory, billions of
// weights a second: 175, tiles 158, int8 190 (bench/2026-11-cpu-xeon.md).
//
// Included by matmul_panel_tile_bf16_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul_panel_tile_bf16_loop.h"

namespace ktx::kernels {
namespace {

// x: the token's activations as floats, from the unit's first column on.
template <class V>
struct OneToken {
  const float* x;
  typename V::F sum = V::zero();
  typename V::F even[2], odd[2];  // of a block each

  KTX_ALWAYS_INLINE explicit OneToken(const float* from) : x(from) {}
  template <int kCount>
  KTX_ALWAYS_INLINE void begin(int /*block*/) {
    for (int slot = 0; slot < kCount; ++slot) even[slot] = odd[slot] = V::zero();
  }
  template <int slot, int w>
  KTX_ALWAYS_INLINE void take(int block, typename V::F f0, typename V::F f1, typename V::F f2,
                              typename V::F f3) {
    const float* at = x + 32 * (block + slot) + 4 * w;
    even[slot] = V::fma(cut_bf16<V>(f0), V::set1(at[0]), even[slot]);
    odd[slot] = V::fma(cut_bf16<V>(f1), V::set1(at[1]), odd[slot]);
    even[slot] = V::fma(cut_bf16<V>(f2), V::set1(at[2]), even[slot]);
    odd[slot] = V::fma(cut_bf16<V>(f3), V::set1(at[3]), odd[slot]);
  }
  template <int kCount>
  KTX_ALWAYS_INLINE void end(int /*block*/) {
    for (int slot = 0; slot < kCount; ++slot) sum = V::add(sum, V::add(even[slot], odd[slot]));
  }
};

template <class V, DType kType>
void panel_product_tile_bf16_one(const MatmulArgs& a) {
  using Codes = Bf16Codes16<V, kType>;
  const FlushSubnormals flush(true);
  float* x = reinterpret_cast<float*>(a.scratch);
  if (!a.x_kept) {
    const uint16_t* row = bf16_row(a, 0);
    for (int64_t k = 0; k < a.w.cols; ++k) x[k] = from_bf16(row[k]);
  }
  WordsAhead<V, Codes, true> ahead(a);
  const int64_t panel_bytes = kPanelRows * a.w.row_bytes;
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (int64_t p = a.row_begin / kPanelRows; p < end; ++p) {
    const PanelPlace<Codes> panel(a, p);
    const uint8_t* words = panel.words;
    const uint8_t* rest = panel.rest;
    OneToken<V> token(x);
    for (int64_t first = 0; first < a.w.cols; first += Codes::kUnit) {
      if constexpr (Codes::kRest > 0) V::prefetch(rest + panel_bytes);
      ahead.ask(words);
      bf16_unit<V, kType>(words, rest, token);
      token.x += Codes::kUnit;
      words += Codes::kWords * 64;
      rest += Codes::kRest;
    }
    store_rows<V>(a, 0, p, token.sum);
  }
}

template <class V>
MatmulFn panel_tile_bf16_one_of(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return panel_product_tile_bf16_one<V, DType::id>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace ktx::kernels
