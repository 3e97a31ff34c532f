// Weights of any dtype, decoded to F32, times float activations, over a vector policy
// (simd/README.md).
//
// An output has one accumulator of 16 lanes that takes 16 products at a time in
// rising k, then V::sum. With one token four rows are decoded a stretch at a time, so
// that the floats stay in the first cache; with more a panel of eight rows is decoded
// whole and meets all tokens.
//
// Included by matmul_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul_store.h"
#include "kernels/matmul/row_decode.h"

namespace ktx::kernels {
namespace {

constexpr int kFloatRows = 8;           // of a panel
constexpr int64_t kStretch = 1024;      // of a row, decoded at a time: a multiple of every block
constexpr int64_t kPanelStretch = 512;  // of a panel, 16 KiB: a multiple of 16
constexpr int64_t kTokenBlock = 32;     // tokens that pass a stretch, 16 KiB of sums

// Adds w[r][0, n) . x[t][0, n) to the sums. n may be any number, but only the last call
// for an output may have one that is no multiple of 16.
template <class V, int kRows, int kTokens>
KTX_INLINE void add_products(const float* const* w, const float* const* x, int64_t n,
                             typename V::F (&sums)[kRows][kTokens]) {
  int64_t k = 0;
  for (; k + 16 <= n; k += 16) {
    typename V::F row[kRows];
    for (int r = 0; r < kRows; ++r) row[r] = V::load(w[r] + k);
    for (int t = 0; t < kTokens; ++t) {
      const typename V::F act = V::load(x[t] + k);
      for (int r = 0; r < kRows; ++r) sums[r][t] = V::fma(row[r], act, sums[r][t]);
    }
  }
  if (k == n) return;
  for (int r = 0; r < kRows; ++r) {
    const typename V::F row = V::load_part(w[r] + k, n - k);
    for (int t = 0; t < kTokens; ++t) {
      sums[r][t] = V::fma(row, V::load_part(x[t] + k, n - k), sums[r][t]);
    }
  }
}

template <class V, int kRows, int kTokens>
KTX_INLINE void clear(typename V::F (&sums)[kRows][kTokens]) {
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) sums[r][t] = V::zero();
  }
}

template <class V, int kRows, int kTokens>
KTX_INLINE void store_tile(const MatmulArgs& a, int64_t n, int64_t i,
                           const typename V::F (&sums)[kRows][kTokens]) {
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) store_output(a, i + t, n + r, V::sum(sums[r][t]));
  }
}

// Floats of elements [k, k + count) of row n: decoded into `buffer`, or where they are.
KTX_INLINE const float* decode_part(const MatmulArgs& a, const DTypeInfo& dtype, RowDecoder decode,
                                    int64_t n, int64_t k, int64_t count, float* buffer) {
  const std::byte* row = a.w.data + n * a.w.row_bytes;
  const std::byte* part = row + k / dtype.block_elems * dtype.block_bytes;
  decode(part, count, buffer);
  return buffer;
}

template <class V, int kRows>
void one_token_f32(const MatmulArgs& a, const DTypeInfo& dtype, RowDecoder decode, int64_t n) {
  float* buffer = reinterpret_cast<float*>(a.scratch);
  typename V::F sums[kRows][1];
  clear<V>(sums);
  for (int64_t k = 0; k < a.w.cols; k += kStretch) {
    const int64_t count = a.w.cols - k < kStretch ? a.w.cols - k : kStretch;
    const float* w[kRows];
    for (int r = 0; r < kRows; ++r) {
      w[r] = decode_part(a, dtype, decode, n + r, k, count, buffer + r * count);
    }
    const float* x[1] = {a.x + x_row(a, 0) * a.x_stride + k};
    add_products<V, kRows, 1>(w, x, count, sums);
  }
  store_tile<V>(a, n, 0, sums);
}

// Sums of 16 lanes of a panel times a block of tokens.
struct BlockSums {
  alignas(64) float sums[kFloatRows][kTokenBlock][16];
};

// Elements [k, k + n) of rows r.. times tokens t.., added to their sums.
template <class V, int kRows, int kTokens>
void tile_f32(const float* const* w, int64_t r0, const float* const* x, int64_t t0, int64_t k,
              int64_t n, BlockSums& block) {
  const float* rows[kRows];
  const float* acts[kTokens];
  typename V::F tile[kRows][kTokens];
  for (int t = 0; t < kTokens; ++t) acts[t] = x[t0 + t] + k;
  for (int r = 0; r < kRows; ++r) {
    rows[r] = w[r0 + r] + k;
    for (int t = 0; t < kTokens; ++t) tile[r][t] = V::load(block.sums[r0 + r][t0 + t]);
  }
  add_products<V, kRows, kTokens>(rows, acts, n, tile);
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) V::store(block.sums[r0 + r][t0 + t], tile[r][t]);
  }
}

template <class V, int kTokens>
void panel_f32(const float* const* w, int64_t count, const float* const* x, int64_t t, int64_t k,
               int64_t n, BlockSums& block) {
  constexpr int kRows = V::kTileRows;
  int64_t r = 0;
  for (; r + kRows <= count; r += kRows) tile_f32<V, kRows, kTokens>(w, r, x, t, k, n, block);
  for (; r < count; ++r) tile_f32<V, 1, kTokens>(w, r, x, t, k, n, block);
}

// A decoded panel times a block of tokens, stretch by stretch, so that the stretch of
// the panel stays in the first cache while all tokens of the block pass.
template <class V>
void block_f32(const MatmulArgs& a, const float* const* w, int64_t n, int64_t count, int64_t i,
               int64_t tokens) {
  BlockSums block;
  __builtin_memset(&block, 0, sizeof block);
  const float* x[kTokenBlock];
  for (int64_t t = 0; t < tokens; ++t) x[t] = a.x + x_row(a, i + t) * a.x_stride;
  for (int64_t k = 0; k < a.w.cols; k += kPanelStretch) {
    const int64_t left = a.w.cols - k < kPanelStretch ? a.w.cols - k : kPanelStretch;
    int64_t t = 0;
    for (; t + V::kTileTokens <= tokens; t += V::kTileTokens) {
      panel_f32<V, V::kTileTokens>(w, count, x, t, k, left, block);
    }
    for (; t < tokens; ++t) panel_f32<V, 1>(w, count, x, t, k, left, block);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < count; ++r) {
      store_output(a, i + t, n + r, V::sum(V::load(block.sums[r][t])));
    }
  }
}

template <class V>
void product_f32(const MatmulArgs& a) {
  const DTypeInfo& dtype = info(a.w.dtype);
  const RowDecoder decode = row_decoder(a.w.dtype, Isa::Avx2);
  if (a.tokens == 1) {
    int64_t n = a.row_begin;
    for (; n + 4 <= a.row_end; n += 4) one_token_f32<V, 4>(a, dtype, decode, n);
    for (; n < a.row_end; ++n) one_token_f32<V, 1>(a, dtype, decode, n);
    return;
  }
  if (a.tokens == 0) return;
  const float* w[kFloatRows];
  for (int64_t n = a.row_begin; n < a.row_end; n += kFloatRows) {
    const int64_t count = a.row_end - n < kFloatRows ? a.row_end - n : kFloatRows;
    for (int64_t r = 0; r < count; ++r) {
      w[r] = decode_part(a, dtype, decode, n + r, 0, a.w.cols,
                         reinterpret_cast<float*>(a.scratch) + r * a.w.cols);
    }
    for (int64_t i = 0; i < a.tokens; i += kTokenBlock) {
      const int64_t tokens = a.tokens - i < kTokenBlock ? a.tokens - i : kTokenBlock;
      block_f32<V>(a, w, n, count, i, tokens);
    }
  }
}

// y += x * w for rising k: a row is decoded once for all tokens.
template <class V>
void product_transposed(const MatmulTransposedArgs& a) {
  const DTypeInfo& dtype = info(a.w.dtype);
  const RowDecoder decode = row_decoder(a.w.dtype, Isa::Avx2);
  float* row = reinterpret_cast<float*>(a.scratch);
  const int64_t cols = a.col_end - a.col_begin;
  const int64_t offset = a.col_begin / dtype.block_elems * dtype.block_bytes;
  for (int64_t i = 0; i < a.tokens; ++i) {
    __builtin_memset(a.y + i * a.y_stride + a.col_begin, 0,
                     static_cast<size_t>(cols) * sizeof(float));
  }
  for (int64_t k = 0; k < a.row_count; ++k) {
    decode(a.w.data + (a.row_begin + k) * a.w.row_bytes + offset, cols, row);
    for (int64_t i = 0; i < a.tokens; ++i) {
      const typename V::F x = V::set1(a.x[i * a.x_stride + k]);
      float* y = a.y + i * a.y_stride + a.col_begin;
      int64_t n = 0;
      for (; n + 16 <= cols; n += 16) V::store(y + n, V::fma(x, V::load(row + n), V::load(y + n)));
      if (n < cols) {
        const typename V::F part = V::load_part(y + n, cols - n);
        V::store_part(y + n, cols - n, V::fma(x, V::load_part(row + n, cols - n), part));
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
