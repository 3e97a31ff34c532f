// Weights of any dtype times float activations, over a vector policy (simd/README.md)
// and a form (float_forms.h).
//
// An output has one accumulator of 16 lanes that takes the units of its row in rising
// order, the rest of a row filled up with zeros to a unit, then V::sum. A few tokens meet
// the rows where they are in memory, eight at a time: so many streams read best beside
// busy neighbours (20 of 21 GB/s of a Zen 4 core, 15 to 17 with one, two or four streams,
// with or without prefetches). More tokens meet 64 rows, a stretch
// of columns at a time: its weights become operands once, in the second cache; those of a
// tile of tokens stay in the first while all rows pass in register tiles.
//
//   F16, 64 rows x 64 tokens: 1 conversion of weights and 1 of activations for 64 FMAs.
//
// Included by matmul_*_<isa>.cc only.
#pragma once

#include "kernels/matmul/float_forms.h"
#include "kernels/matmul/float_scratch.h"
#include "kernels/matmul/matmul_store.h"
#include "kernels/matmul/row_decode.h"
#include "kernels/simd/flush_subnormals.h"

namespace ktx::kernels {
namespace {

template <int kValue>
struct Part {
  static constexpr int value = kValue;
};
// f(Part<0>()), ... f(Part<n - 1>()).
template <int n, int i = 0, class Fn>
KTX_INLINE void each_part(Fn f) {
  if constexpr (i < n) {
    f(Part<i>());
    each_part<n, i + 1>(f);
  }
}

template <class Form>
using ElemOf = typename Form::Math::Elem;

template <class Form>
constexpr int64_t padded_to_units(int64_t count) {
  return (count + Form::kUnit - 1) / Form::kUnit * Form::kUnit;
}

template <class Form>
void act_unit(const float* x, ElemOf<Form>* out) {
  each_part<Form::kParts>([&](auto p) __attribute__((always_inline)) {
    Form::Math::store(out + p.value * Form::Math::kStep, Form::template act_part<p.value>(x));
  });
}

// `count` activations as operands; out has room for whole units.
template <class Form>
void convert_activations(const float* x, int64_t count, ElemOf<Form>* out) {
  int64_t k = 0;
  for (; k + Form::kUnit <= count; k += Form::kUnit) act_unit<Form>(x + k, out + k);
  if (k == count) return;
  alignas(64) float rest[Form::kUnit] = {};
  __builtin_memcpy(rest, x + k, static_cast<size_t>(count - k) * sizeof(float));
  act_unit<Form>(rest, out + k);
}

// `count` weights as operands, likewise. Those `ahead` bytes on are asked for: the hardware
// begins anew with every row.
template <class Form>
void convert_weights(const uint8_t* w, int64_t elem_bytes, int64_t ahead, int64_t count,
                     ElemOf<Form>* out) {
  const auto unit = [](const uint8_t* from, ElemOf<Form>* to) __attribute__((always_inline)) {
    each_part<Form::kParts>([&](auto p) __attribute__((always_inline)) {
      Form::Math::store(to + p.value * Form::Math::kStep, Form::template part<p.value>(from));
    });
  };
  int64_t k = 0;
  for (; k + Form::kUnit <= count; k += Form::kUnit) {
    __builtin_prefetch(w + k * elem_bytes + ahead);
    unit(w + k * elem_bytes, out + k);
  }
  if (k == count) return;
  alignas(64) uint8_t rest[64] = {};
  __builtin_memcpy(rest, w + k * elem_bytes, static_cast<size_t>((count - k) * elem_bytes));
  unit(rest, out + k);
}

// Four finished outputs, rows n .. n + 3, of token i.
template <class V>
KTX_INLINE void store_four(const MatmulArgs& a, int64_t i, int64_t n, int64_t count, __m128 v) {
  alignas(16) float four[4];
  _mm_store_ps(four, v);
  for (int64_t r = 0; r < count; ++r) store_output(a, i, n + r, four[r]);
}

// ---- a few tokens

template <class V, class Form, int kRows, int kTokens>
KTX_INLINE void add_unit(const uint8_t* const (&w)[kRows], const ElemOf<Form>* const (&x)[kTokens],
                         int64_t k, typename V::F (&sums)[kRows][kTokens]) {
  each_part<Form::kParts>([&](auto p) __attribute__((always_inline)) {
    typename Form::Math::W acts[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      acts[t] = Form::Math::load(x[t] + k + p.value * Form::Math::kStep);
    }
    for (int r = 0; r < kRows; ++r) {
      const typename Form::Math::W weights = Form::template part<p.value>(w[r]);
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t] = Form::Math::fma(weights, acts[t], sums[r][t]);
      }
    }
  });
}

// Rows [n, n + kRows) times tokens [i, i + kTokens), activations as operands in x.
template <class V, class Form, int kRows, int kTokens>
void direct_rows(const MatmulArgs& a, int64_t elem_bytes, int64_t n, int64_t i,
                 const ElemOf<Form>* const (&x)[kTokens]) {
  const uint8_t* w[kRows];
  typename V::F sums[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    w[r] = reinterpret_cast<const uint8_t*>(a.w.data) + (n + r) * a.w.row_bytes;
    for (int t = 0; t < kTokens; ++t) sums[r][t] = V::zero();
  }
  int64_t k = 0;
  for (; k + Form::kUnit <= a.w.cols; k += Form::kUnit) {
    add_unit<V, Form, kRows, kTokens>(w, x, k, sums);
    for (int r = 0; r < kRows; ++r) w[r] += Form::kUnit * elem_bytes;
  }
  if (k < a.w.cols) {
    alignas(64) uint8_t rest[kRows][64] = {};
    for (int r = 0; r < kRows; ++r) {
      __builtin_memcpy(rest[r], w[r], static_cast<size_t>((a.w.cols - k) * elem_bytes));
      w[r] = rest[r];
    }
    add_unit<V, Form, kRows, kTokens>(w, x, k, sums);
  }
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (kRows % 4 == 0) {
      for (int r = 0; r < kRows; r += 4) {
        store_four<V>(a, i + t, n + r, 4,
                      V::sum4(sums[r][t], sums[r + 1][t], sums[r + 2][t], sums[r + 3][t]));
      }
    } else {
      for (int r = 0; r < kRows; ++r) store_output(a, i + t, n + r, V::sum(sums[r][t]));
    }
  }
}

template <class V, class Form, int kTokens>
void direct_f32(const MatmulArgs& a, int64_t i) {
  constexpr int kRows = V::kDirectSums / kTokens < 8 ? V::kDirectSums / kTokens : 8;
  const int64_t elem_bytes = info(a.w.dtype).block_bytes;
  const int64_t padded = padded_to_units<Form>(a.w.cols);
  const ElemOf<Form>* x[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    const float* row = a.x + x_row(a, i + t) * a.x_stride;
    if constexpr (Form::kPlain) {
      x[t] = row;
      if (padded == a.w.cols) continue;
    }
    auto* buffer = reinterpret_cast<ElemOf<Form>*>(a.scratch) + t * padded;
    convert_activations<Form>(row, a.w.cols, buffer);
    x[t] = buffer;
  }
  int64_t n = a.row_begin;
  for (; n + kRows <= a.row_end; n += kRows) {
    direct_rows<V, Form, kRows, kTokens>(a, elem_bytes, n, i, x);
  }
  for (; n < a.row_end; ++n) direct_rows<V, Form, 1, kTokens>(a, elem_bytes, n, i, x);
}

// Tokens from i on, kTokens at a time, the rest in halves of that.
template <class V, class Form, int kTokens>
void direct_tokens(const MatmulArgs& a, int64_t i) {
  for (; i + kTokens <= a.tokens; i += kTokens) direct_f32<V, Form, kTokens>(a, i);
  if constexpr (kTokens > 1) direct_tokens<V, Form, kTokens / 2>(a, i);
}

// One token and rows that are decoded a stretch at a time, so that the floats stay in the
// first cache.
template <class V, int kRows>
void decoded_rows(const MatmulArgs& a, const DTypeInfo& dtype, RowDecoder decode, int64_t n,
                  int64_t i) {
  constexpr int64_t kStretch = 1024;  // a multiple of every block
  using Form = FloatForm<V, DType::F32>;
  float* buffer = reinterpret_cast<float*>(a.scratch);
  typename V::F sums[kRows][1];
  for (int r = 0; r < kRows; ++r) sums[r][0] = V::zero();
  for (int64_t k = 0; k < a.w.cols; k += kStretch) {
    const int64_t count = a.w.cols - k < kStretch ? a.w.cols - k : kStretch;
    const uint8_t* w[kRows];
    for (int r = 0; r < kRows; ++r) {
      const std::byte* row = a.w.data + (n + r) * a.w.row_bytes;
      decode(row + k / dtype.block_elems * dtype.block_bytes, count, buffer + r * kStretch);
      w[r] = reinterpret_cast<const uint8_t*>(buffer + r * kStretch);
    }
    const float* x[1] = {a.x + x_row(a, i) * a.x_stride + k};
    for (int64_t j = 0; j < count; j += Form::kUnit) {
      add_unit<V, Form, kRows, 1>(w, x, j, sums);
      for (int r = 0; r < kRows; ++r) w[r] += Form::kUnit * sizeof(float);
    }
  }
  for (int r = 0; r < kRows; ++r) store_output(a, i, n + r, V::sum(sums[r][0]));
}

// ---- more tokens

// A register tile over a stretch: kRows rows and kTokens tokens that are `stride` elements
// apart. Its sums stand side by side.
template <class V, class Math, int kRows, int kTokens>
void float_tile(const typename Math::Elem* w, const typename Math::Elem* x, int64_t stride,
                int64_t count, float* sums) {
  typename V::F tile[kRows][kTokens];
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    KTX_UNROLL
    for (int r = 0; r < kRows; ++r) tile[r][t] = V::load(sums + (t * kRows + r) * 16);
  }
  for (int64_t k = 0; k < count; k += Math::kStep) {
    typename Math::W rows[kRows];
    KTX_UNROLL
    for (int r = 0; r < kRows; ++r) rows[r] = Math::load(w + r * stride + k);
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const typename Math::W act = Math::load(x + t * stride + k);
      KTX_UNROLL
      for (int r = 0; r < kRows; ++r) tile[r][t] = Math::fma(rows[r], act, tile[r][t]);
    }
  }
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    KTX_UNROLL
    for (int r = 0; r < kRows; ++r) V::store(sums + (t * kRows + r) * 16, tile[r][t]);
  }
}

// Where the next tile's activations lie: a stretch of each of its tokens. They come from
// far away, so they are asked for while this tile's rows pass.
struct NextActivations {
  const float* rows[8];
  int64_t tokens = 0;
  int64_t lines = 0;  // of a token

  // Part `part` of `parts` of all lines.
  __attribute__((always_inline)) void prefetch(int64_t part, int64_t parts) const {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = lines * part / parts; i < lines * (part + 1) / parts; ++i) {
        __builtin_prefetch(rows[t] + 16 * i);
      }
    }
  }
};

template <class V, class Math, int kTokens>
void tile_of(int64_t tokens, int64_t rows, const typename Math::Elem* w,
             const typename Math::Elem* x, int64_t stride, int64_t count,
             const NextActivations& next, float* sums) {
  if (tokens == kTokens) {
    for (int64_t r = 0; r < rows; r += V::kTileRows) {
      next.prefetch(r / V::kTileRows, rows / V::kTileRows);
      float_tile<V, Math, V::kTileRows, kTokens>(w + r * stride, x, stride, count,
                                                 sums + r * kTokens * 16);
    }
    return;
  }
  if constexpr (kTokens > 1) {
    tile_of<V, Math, kTokens - 1>(tokens, rows, w, x, stride, count, next, sums);
  }
}

template <class Form>
void stretch_of_row(const MatmulArgs& a, int64_t n, int64_t k, int64_t count, ElemOf<Form>* out) {
  const DTypeInfo& dtype = info(a.w.dtype);
  const std::byte* row = a.w.data + n * a.w.row_bytes + k / dtype.block_elems * dtype.block_bytes;
  if constexpr (requires(const uint8_t* w) { Form::template part<0>(w); }) {
    convert_weights<Form>(reinterpret_cast<const uint8_t*>(row), dtype.block_bytes,
                          2 * a.w.row_bytes, count, out);
  } else {
    row_decoder(a.w.dtype, Isa::Avx2)(row, count, out);
  }
}

// Finished sums of `rows` rows and `tokens` tokens, as the register tiles left them.
template <class V>
void store_tile(const MatmulArgs& a, int64_t n, int64_t rows, int64_t i, int64_t tokens,
                const float* sums) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; r += 4) {
      const int64_t count = rows - r < 4 ? rows - r : 4;
      const auto at = [&](int64_t j) __attribute__((always_inline)) {
        const int64_t row = r + (j < count ? j : 0), first = row / V::kTileRows * V::kTileRows;
        return V::load(sums + (first * tokens + t * V::kTileRows + row - first) * 16);
      };
      store_four<V>(a, i + t, n + r, count, V::sum4(at(0), at(1), at(2), at(3)));
    }
  }
}

// At most kFloatRows rows from n on times at most kFloatTokens tokens from i on.
template <class V, class Form>
void float_block(const MatmulArgs& a, int64_t n, int64_t rows, int64_t i, int64_t tokens) {
  using Elem = ElemOf<Form>;
  constexpr int64_t kStretch = kFloatStretchBytes / static_cast<int64_t>(sizeof(Elem));
  const FloatScratch scratch(a.scratch);
  auto* w = reinterpret_cast<Elem*>(scratch.weights);
  auto* x = reinterpret_cast<Elem*>(scratch.activations);
  const int64_t whole = (rows + V::kTileRows - 1) / V::kTileRows * V::kTileRows;
  const int64_t tiles = (tokens + V::kTileTokens - 1) / V::kTileTokens;
  __builtin_memset(scratch.sums, 0, static_cast<size_t>(tokens * whole) * 64);
  for (int64_t r = rows; r < whole; ++r) {
    __builtin_memset(w + r * kStretch, 0, static_cast<size_t>(kFloatStretchBytes));
  }
  for (int64_t k = 0; k < a.w.cols; k += kStretch) {
    const int64_t count = a.w.cols - k < kStretch ? a.w.cols - k : kStretch;
    for (int64_t r = 0; r < rows; ++r) stretch_of_row<Form>(a, n + r, k, count, w + r * kStretch);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of almost the same size: 32 tokens are 6 + 5 + 5 + 6 + 5 + 5.
      const int64_t begin = tokens * tile / tiles, size = tokens * (tile + 1) / tiles - begin;
      for (int64_t t = 0; t < size; ++t) {
        convert_activations<Form>(a.x + x_row(a, i + begin + t) * a.x_stride + k, count,
                                  x + t * kStretch);
      }
      NextActivations next;
      if (tile + 1 < tiles) {
        next.tokens = tokens * (tile + 2) / tiles - begin - size;
        next.lines = (count + 15) / 16;
        for (int64_t t = 0; t < next.tokens; ++t) {
          next.rows[t] = a.x + x_row(a, i + begin + size + t) * a.x_stride + k;
        }
      }
      tile_of<V, typename Form::Math, V::kTileTokens>(size, whole, w, x, kStretch,
                                                      padded_to_units<Form>(count), next,
                                                      scratch.sums + begin * whole * 16);
    }
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t begin = tokens * tile / tiles, size = tokens * (tile + 1) / tiles - begin;
    store_tile<V>(a, n, rows, i + begin, size, scratch.sums + begin * whole * 16);
  }
}

// ---- kernels

// Weights whose operands come straight from memory.
template <class V, class Form>
void float_skinny(const MatmulArgs& a) {
  const FlushSubnormals flush(Form::kFlush);
  direct_tokens<V, Form, V::kDirectTokens>(a, 0);
}

template <class V>
void decoded_gemv(const MatmulArgs& a) {
  const DTypeInfo& dtype = info(a.w.dtype);
  const RowDecoder decode = row_decoder(a.w.dtype, Isa::Avx2);
  for (int64_t i = 0; i < a.tokens; ++i) {
    int64_t n = a.row_begin;
    for (; n + 4 <= a.row_end; n += 4) decoded_rows<V, 4>(a, dtype, decode, n, i);
    for (; n < a.row_end; ++n) decoded_rows<V, 1>(a, dtype, decode, n, i);
  }
}

template <class V, class Form>
void float_gemm(const MatmulArgs& a) {
  const FlushSubnormals flush(Form::kFlush);
  for (int64_t i = 0; i < a.tokens; i += kFloatTokens) {
    const int64_t tokens = a.tokens - i < kFloatTokens ? a.tokens - i : kFloatTokens;
    for (int64_t n = a.row_begin; n < a.row_end; n += kFloatRows) {
      const int64_t rows = a.row_end - n < kFloatRows ? a.row_end - n : kFloatRows;
      float_block<V, Form>(a, n, rows, i, tokens);
    }
  }
}
template <class V>
constexpr MatmulFn decoded_gemm = float_gemm<V, DecodedForm<V>>;

// The kernels of floats as they are; null for other dtypes.
static inline bool is_float(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}
template <class V>
MatmulFn exact_skinny(DType dtype) {
  if (dtype == DType::F32) return float_skinny<V, FloatForm<V, DType::F32>>;
  if (dtype == DType::F16) return float_skinny<V, FloatForm<V, DType::F16>>;
  if (dtype == DType::BF16) return float_skinny<V, FloatForm<V, DType::BF16>>;
  return nullptr;
}
template <class V>
MatmulFn exact_gemm(DType dtype) {
  if (dtype == DType::F32) return float_gemm<V, FloatForm<V, DType::F32>>;
  if (dtype == DType::F16) return float_gemm<V, FloatForm<V, DType::F16>>;
  if (dtype == DType::BF16) return float_gemm<V, FloatForm<V, DType::BF16>>;
  return nullptr;
}

}  // namespace
}  // namespace ktx::kernels
