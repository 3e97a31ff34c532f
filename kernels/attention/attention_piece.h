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

#define KTX_ALWAYS_INLINE __attribute__((always_inline))

namespace ktx::kernels {
namespace {

constexpr int64_t kPiece = kAttentionPiece;

// Register tiles: so many rows times kVectors sums, and their operands. Zen 4 does one
// FMA of 16 lanes a cycle and loads one register: 12 rows x 2 need 14 loads for 24 FMAs,
// 4 rows x 4 need 8 for 16, and the larger tile reads a piece a third as often.
template <class V>
constexpr bool kWide = sizeof(typename V::F) == 64 && alignof(typename V::F) == 64;
template <class V>
constexpr int kMostRows = kWide<V> ? 12 : 4;
template <class V>
constexpr int kFewRows = kWide<V> ? 4 : 2;  // groups are multiples of it, or one row
template <class V, int R>
constexpr int kVectors = (kWide<V> ? 4 : 2) / (R > kFewRows<V> ? 2 : 1);
// q vectors of larger groups are interleaved, so that they need one pointer.
template <class V, int R>
constexpr bool kInterleaved = R > kFewRows<V>;

// A piece of the cache as floats.
struct Piece {
  const float* keys;    // [key_dim][kPiece]
  const float* values;  // [kPiece][value_stride]; or, when null,
  const uint16_t* half_values;
  int64_t value_stride;
};

// A q vector, and what it has of the positions so far: o is the sum of the values'
// weights exp(score - largest), `sum` that of the weights. Element d of an interleaved q
// is q[R * d], R the rows of its group.
struct Row {
  const float* q;
  int64_t positions;  // that it sees, from 0 on
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

// Scores of R rows and all positions of the piece.
template <class V, int R>
KTX_INLINE void score_rows(const Piece& piece, const AttentionAttrs& attrs, const Row* rows,
                           float (*scores)[kPiece]) {
  constexpr int N = kVectors<V, R>;
  const typename V::F scale = V::set1(attrs.scale);
  for (int64_t p = 0; p < kPiece; p += 16 * N) {
    typename V::F sum[R][N];
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sum[r][n] = V::zero();
    }
    for (int64_t d = 0; d < attrs.key_dim; ++d) {
      const float* key = piece.keys + d * kPiece + p;
      typename V::F k[N];
      for (int n = 0; n < N; ++n) k[n] = V::load(key + 16 * n);
      KTX_UNROLL
      for (int r = 0; r < R; ++r) {
        const typename V::F x = V::set1(kInterleaved<V, R> ? rows[0].q[R * d + r] : rows[r].q[d]);
        for (int n = 0; n < N; ++n) sum[r][n] = V::fma(x, k[n], sum[r][n]);
      }
    }
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) V::store(scores[r] + p + 16 * n, V::mul(sum[r][n], scale));
    }
  }
}

// What the sums so far and new ones are multiplied by when they join.
struct Factors {
  float keep, take;
};

// exp of what the maxima `a` and `b` are below the larger one, which is left in `a`: as
// many as 16 rows' at once.
template <class V>
KTX_INLINE void factors_of(float* a, const float* b, Factors* out, int rows) {
  alignas(64) float keep[16], take[16];
  const typename V::F before = V::load(a), next = V::load(b), now = V::max(next, before);
  V::store(keep, exp16<V>(V::sub(before, now)));
  V::store(take, exp16<V>(V::sub(next, now)));
  V::store(a, now);
  for (int r = 0; r < rows; ++r) out[r] = {keep[r], take[r]};
}

// Scores become weights exp(score - maximum), and their sums and maxima join the rows'.
// count: how many positions each row sees. Rows that see none stay as they are.
template <class V, int R>
KTX_INLINE void weights_of(float (*scores)[kPiece], const int64_t* count, Row* rows,
                           Factors* factors) {
  alignas(64) float largest[16] = {}, before[16] = {}, sums[R];
  for (int r = 0; r < R; ++r) {
    for (int64_t j = count[r] < 0 ? 0 : count[r]; j < kPiece; ++j) {
      scores[r][j] = -__builtin_inff();
    }
    typename V::F m = V::load(scores[r]);
    for (int64_t j = 16; j < kPiece; j += 16) m = V::max(m, V::load(scores[r] + j));
    before[r] = rows[r].largest;
    largest[r] = V::max_of(m);
  }
  for (int r = 0; r < R; ++r) {
    const typename V::F shift = V::set1(largest[r]);
    typename V::F sum = V::zero();
    for (int64_t j = 0; j < kPiece; j += 16) {
      const typename V::F p = exp16<V>(V::sub(V::load(scores[r] + j), shift));
      V::store(scores[r] + j, p);
      sum = V::add(sum, p);
    }
    sums[r] = V::sum(sum);
  }
  factors_of<V>(before, largest, factors, R);
  for (int r = 0; r < R; ++r) {
    if (count[r] <= 0) continue;
    rows[r].sum = rows[r].sum * factors[r].keep + sums[r] * factors[r].take;
    rows[r].largest = before[r];
  }
}

// Columns [d, d + 16 * N) of o, or the last `part` of them when N is 1. All rows take
// the first `all` positions, and those behind them up to `most` the rows that see them.
template <class V, int R, int N, bool kHalf>
KTX_INLINE void weigh_columns(const Piece& piece, const Row* rows, const Factors* factors,
                              const float (*weights)[kPiece], const int64_t* count, int64_t all,
                              int64_t most, int64_t d, int64_t part) {
  typename V::F sum[R][N];
  KTX_UNROLL
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) sum[r][n] = V::zero();
  }
  const auto load = [&](int64_t j, int n) KTX_ALWAYS_INLINE {
    const int64_t at = j * piece.value_stride + d + 16 * n;
    return kHalf ? V::load_half(piece.half_values + at) : V::load(piece.values + at);
  };
  for (int64_t j = 0; j < all; ++j) {
    typename V::F v[N];
    for (int n = 0; n < N; ++n) v[n] = load(j, n);
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      const typename V::F p = V::set1(weights[r][j]);
      for (int n = 0; n < N; ++n) sum[r][n] = V::fma(p, v[n], sum[r][n]);
    }
  }
  for (int64_t j = all; j < most; ++j) {
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      if (j >= count[r]) continue;
      const typename V::F p = V::set1(weights[r][j]);
      for (int n = 0; n < N; ++n) sum[r][n] = V::fma(p, load(j, n), sum[r][n]);
    }
  }
  KTX_UNROLL
  for (int r = 0; r < R; ++r) {
    if (count[r] <= 0) continue;
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
                             const int64_t* count) {
  constexpr int N = kVectors<V, R>;
  int64_t all = count[0], most = count[0];
  for (int r = 1; r < R; ++r) {
    all = count[r] < all ? count[r] : all;
    most = count[r] > most ? count[r] : most;
  }
  all = all < 0 ? 0 : all;
  int64_t d = 0;
  for (; d + 16 * N <= attrs.value_dim; d += 16 * N) {
    weigh_columns<V, R, N, kHalf>(piece, rows, factors, weights, count, all, most, d, 16);
  }
  for (; d < attrs.value_dim; d += 16) {
    const int64_t left = attrs.value_dim - d;
    weigh_columns<V, R, 1, kHalf>(piece, rows, factors, weights, count, all, most, d,
                                  left < 16 ? left : 16);
  }
}

// A group of R rows takes the piece; row r sees its first count[r] positions, all of
// them at most, and some row sees one.
template <class V, int R>
void take_piece(const Piece& piece, const AttentionAttrs& attrs, Row* rows, const int64_t* count) {
  alignas(64) float weights[R][kPiece];
  Factors factors[R];
  score_rows<V, R>(piece, attrs, rows, weights);
  weights_of<V, R>(weights, count, rows, factors);
  if (piece.values) {
    weigh_values<V, R, false>(piece, attrs, rows, factors, weights, count);
  } else {
    weigh_values<V, R, true>(piece, attrs, rows, factors, weights, count);
  }
}

// Rows of a group, as a constant.
template <int kRows>
struct Size {
  static constexpr int value = kRows;
};

// Cuts rows into groups of kMostRows, the next multiples of kFewRows and one, and gives
// each to group(first row, Size).
template <class V, int R = kMostRows<V>, class Group>
KTX_INLINE void each_group(int64_t row, int64_t end, const Group& group) {
  for (; row + R <= end; row += R) group(row, Size<R>());
  if constexpr (R > 1) each_group<V, (R > kFewRows<V> ? R - kFewRows<V> : 1)>(row, end, group);
}

// The q vectors of R rows, one element of each after the other.
template <int R>
KTX_INLINE void interleave(const Row* rows, int64_t dim, float* out) {
  static_assert(R % 4 == 0);
  for (int r = 0; r < R; r += 4) {
    int64_t d = 0;
    for (; d + 4 <= dim; d += 4) {
      __m128 x[4];
      for (int i = 0; i < 4; ++i) x[i] = _mm_loadu_ps(rows[r + i].q + d);
      _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(out + (d + i) * R + r, x[i]);
    }
    for (; d < dim; ++d) {
      for (int i = 0; i < 4; ++i) out[d * R + r + i] = rows[r + i].q[d];
    }
  }
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
