// What some rows (q vectors) do with a piece of 64 positions, over a vector policy
// (simd/README.md). The keys stand transposed, so that 16 positions are the lanes of
// a register and a score is one sum over rising d:
//
//   score[r][j] = scale * (q[r] . key[j])        rows x 16 positions a register tile
//   m = max score;  p[j] = exp(score[j] - m);  s = sum p
//   o[r] = o[r] * keep + (sum of p[r][j] * value[j], rising j) * take
//
// Rows are taken several at a time, which changes no row's sums. Included by
// attention_loop.h only.
#pragma once

#include <immintrin.h>

#include "kernels/attention/attention.h"
#include "kernels/simd/exp.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kPiece = kAttentionPiece;

// Register tiles: kRows x kVectors sums, and their operands.
template <class V>
constexpr bool kWide = sizeof(typename V::F) == 64 && alignof(typename V::F) == 64;
template <class V>
constexpr int kRows = kWide<V> ? 4 : 2;
template <class V>
constexpr int kVectors = kWide<V> ? 4 : 2;

// A piece of the cache as floats.
struct Piece {
  const float* keys;    // [key_dim][kPiece]
  const float* values;  // [kPiece][value_stride]; or, when null,
  const uint16_t* half_values;
  int64_t value_stride;
};

// A q vector, and what it has of the positions so far: o is the sum of the values'
// weights exp(score - largest), `sum` that of the weights.
struct Row {
  const float* q;
  float* o;
  float largest;
  float sum;
};

// 8 rows of `stride` floats to 8 rows of kPiece.
KTX_INLINE void transpose8(const float* in, int64_t stride, float* out) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(in + i * stride);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * kPiece, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * kPiece, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

template <class V, int R>
KTX_INLINE void score_rows(const Piece& piece, const AttentionAttrs& attrs, const Row* rows,
                           float (*scores)[kPiece]) {
  constexpr int N = kVectors<V>;
  const typename V::F scale = V::set1(attrs.scale);
  for (int64_t p = 0; p < kPiece; p += 16 * N) {
    typename V::F sum[R][N];
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sum[r][n] = V::zero();
    }
    for (int64_t d = 0; d < attrs.key_dim; ++d) {
      const float* key = piece.keys + d * kPiece + p;
      typename V::F k[N];
      for (int n = 0; n < N; ++n) k[n] = V::load(key + 16 * n);
      for (int r = 0; r < R; ++r) {
        const typename V::F x = V::set1(rows[r].q[d]);
        for (int n = 0; n < N; ++n) sum[r][n] = V::fma(x, k[n], sum[r][n]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) V::store(scores[r] + p + 16 * n, V::mul(sum[r][n], scale));
    }
  }
}

// scores become weights exp(score - maximum); returns their sum.
template <class V>
KTX_INLINE float weights_of(float* scores, float* largest) {
  typename V::F m = V::load(scores);
  for (int64_t j = 16; j < kPiece; j += 16) m = V::max(m, V::load(scores + j));
  *largest = V::max_of(m);
  const typename V::F shift = V::set1(*largest);
  typename V::F sum = V::zero();
  for (int64_t j = 0; j < kPiece; j += 16) {
    const typename V::F p = exp16<V>(V::sub(V::load(scores + j), shift));
    V::store(scores + j, p);
    sum = V::add(sum, p);
  }
  return V::sum(sum);
}

// What the sums so far and new ones, of maxima a and b, are multiplied by.
struct Factors {
  float keep, take, largest;
};
template <class V>
KTX_INLINE Factors factors_of(float a, float b) {
  const float now = a > b ? a : b;
  alignas(64) float factors[16] = {a - now, b - now};
  V::store(factors, exp16<V>(V::load(factors)));
  return {factors[0], factors[1], now};
}

// Columns [d, d + 16 * N) of o, or the last `part` of them when N is 1.
template <class V, int R, int N, bool kHalf>
KTX_INLINE void weigh_columns(const Piece& piece, const Row* rows, const Factors* factors,
                              const float (*weights)[kPiece], int64_t count, int64_t d,
                              int64_t part) {
  typename V::F sum[R][N];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) sum[r][n] = V::zero();
  }
  for (int64_t j = 0; j < count; ++j) {
    const int64_t at = j * piece.value_stride + d;
    typename V::F v[N];
    for (int n = 0; n < N; ++n) {
      v[n] = kHalf ? V::load_half(piece.half_values + at + 16 * n)
                   : V::load(piece.values + at + 16 * n);
    }
    for (int r = 0; r < R; ++r) {
      const typename V::F p = V::set1(weights[r][j]);
      for (int n = 0; n < N; ++n) sum[r][n] = V::fma(p, v[n], sum[r][n]);
    }
  }
  for (int r = 0; r < R; ++r) {
    const typename V::F keep = V::set1(factors[r].keep), take = V::set1(factors[r].take);
    float* o = rows[r].o + d;
    for (int n = 0; n < N; ++n) {
      const typename V::F taken = V::mul(sum[r][n], take);
      if (part < 16) {
        V::store_part(o, part, V::fma(V::load_part(o, part), keep, taken));
      } else {
        V::store(o + 16 * n, V::fma(V::load(o + 16 * n), keep, taken));
      }
    }
  }
}

template <class V, int R, bool kHalf>
KTX_INLINE void weigh_values(const Piece& piece, const AttentionAttrs& attrs, const Row* rows,
                             const Factors* factors, const float (*weights)[kPiece],
                             int64_t count) {
  constexpr int N = kVectors<V>;
  int64_t d = 0;
  for (; d + 16 * N <= attrs.value_dim; d += 16 * N) {
    weigh_columns<V, R, N, kHalf>(piece, rows, factors, weights, count, d, 16);
  }
  for (; d < attrs.value_dim; d += 16) {
    const int64_t left = attrs.value_dim - d;
    weigh_columns<V, R, 1, kHalf>(piece, rows, factors, weights, count, d, left < 16 ? left : 16);
  }
}

// R rows that all see the first `count` positions of the piece.
template <class V, int R>
KTX_INLINE void take_rows(const Piece& piece, const AttentionAttrs& attrs, Row* rows,
                          int64_t count) {
  alignas(64) float weights[R][kPiece];
  Factors factors[R];
  score_rows<V, R>(piece, attrs, rows, weights);
  for (int r = 0; r < R; ++r) {
    for (int64_t j = count; j < kPiece; ++j) weights[r][j] = -__builtin_inff();
    float largest;
    const float sum = weights_of<V>(weights[r], &largest);
    factors[r] = factors_of<V>(rows[r].largest, largest);
    rows[r].sum = rows[r].sum * factors[r].keep + sum * factors[r].take;
    rows[r].largest = factors[r].largest;
  }
  if (piece.values) {
    weigh_values<V, R, false>(piece, attrs, rows, factors, weights, count);
  } else {
    weigh_values<V, R, true>(piece, attrs, rows, factors, weights, count);
  }
}

// Any number of rows that all see the first `count` positions.
template <class V>
KTX_INLINE void take_piece(const Piece& piece, const AttentionAttrs& attrs, Row* rows,
                           int64_t row_count, int64_t count) {
  int64_t r = 0;
  for (; r + kRows<V> <= row_count; r += kRows<V>) {
    take_rows<V, kRows<V>>(piece, attrs, rows + r, count);
  }
  for (; r < row_count; ++r) take_rows<V, 1>(piece, attrs, rows + r, count);
}

// total = total * keep + o * take
template <class V>
KTX_INLINE void merge(float* total, const float* o, int64_t n, float keep, float take) {
  const typename V::F k = V::set1(keep), t = V::set1(take);
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) {
    V::store(total + d, V::fma(V::load(total + d), k, V::mul(V::load(o + d), t)));
  }
  if (d < n) {
    const typename V::F part = V::mul(V::load_part(o + d, n - d), t);
    V::store_part(total + d, n - d, V::fma(V::load_part(total + d, n - d), k, part));
  }
}

// y = o * by
template <class V>
KTX_INLINE void scale_row(float* y, const float* o, int64_t n, float by) {
  const typename V::F s = V::set1(by);
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) V::store(y + d, V::mul(V::load(o + d), s));
  if (d < n) V::store_part(y + d, n - d, V::mul(V::load_part(o + d, n - d), s));
}

}  // namespace
}  // namespace ktx::kernels
