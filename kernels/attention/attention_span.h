// What some rows (q vectors) do with a span of 256 positions, over operands of attention_dots.h.
// The keys stand transposed, so that 16 positions are the lanes of a register and a score is one
// sum over rising d:
//
//   score[r][j] = scale * (q[r] . key[j])        rows x 16 positions a register tile
//   m = max score;  p[j] = exp(score[j] - m);  s = sum p
//   o[r] = sum of p[r][j] * value[j], rising j
//
// Rows are taken several at a time, which changes no row's sums. Included by
// attention_loop.h only.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_dots.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kSpan = kAttentionSpan;
constexpr int64_t kStripe = 64;  // positions whose keys stand together, transposed

// Register tiles: so many rows times kVectors sums, and their operands. Zen 4 does one
// FMA of 16 lanes a cycle and loads one register: 12 rows x 2 need 14 loads for 24 FMAs,
// 4 rows x 4 need 8 for 16, and the larger tile reads a span a third as often.
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

// Positions of a span as elements.
template <class D>
struct Span {
  const typename D::Elem* keys;    // [kSpan / kStripe][key_stride][kStripe]
  const typename D::Elem* values;  // [kSpan / kCols][value_stride]
  int64_t key_steps, key_stride, value_stride;
};

// A q vector, and what it has of a span: o is the sum of the values' weights
// exp(score - largest), `sum` that of the weights. Element d of an interleaved q is q[R * d],
// R the rows of its group.
template <class D>
struct Row {
  const typename D::Elem* q;
  int64_t first;      // position that it sees
  int64_t positions;  // the last one's, and 1
  float* o;
  float largest;
  float sum;
  float slope = 0;  // of alibi, in units of D
  int64_t own = 0;  // the token's position
};

// A row's scores and then its weights; what is written past its positions fits in.
using Scores = float[kSpan + 16];

// The positions [begin, end) of a span that each of R rows sees, none where end is 0, and the least
// range that holds all of them; `begin` is a multiple of 16.
template <int R>
struct Seen {
  int64_t row_begin[R], row_end[R];
  int64_t begin, end;
};

// Scores of R rows and at least the positions [begin, end), in units of D.
template <class D, int R>
KTX_INLINE void score_rows(const Span<D>& span, float scale, const Row<D>* rows, int64_t begin,
                           int64_t end, Scores* scores) {
  using V = typename D::V;
  constexpr int N = kVectors<V, R>;
  const typename V::F unit = V::set1(scale * D::kUnit);
  for (int64_t p = begin / (16 * N) * (16 * N); p < end; p += 16 * N) {
    const typename D::Elem* keys =
        span.keys + p / kStripe * kStripe * span.key_stride + p % kStripe;
    typename V::F sum[R][N];
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sum[r][n] = V::zero();
    }
    for (int64_t step = 0; step < span.key_steps; ++step) {
      const int64_t d = D::in_order(step);
      typename D::W k[N];
      for (int n = 0; n < N; ++n) k[n] = D::load(keys + d * kStripe + 16 * n);
      KTX_UNROLL
      for (int r = 0; r < R; ++r) {
        const typename D::W x = D::set1(kInterleaved<V, R> ? rows[0].q + R * d + r : rows[r].q + d);
        for (int n = 0; n < N; ++n) sum[r][n] = D::fma(k[n], x, sum[r][n]);
      }
    }
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) V::store(scores[r] + p + 16 * n, V::mul(sum[r][n], unit));
    }
  }
}

// score becomes softcap * tanh(score / softcap).
template <class D>
KTX_INLINE void cap_scores(float* scores, int64_t begin, int64_t end, float softcap) {
  using V = typename D::V;
  const typename V::F from_unit = V::set1(1 / (softcap * D::kUnit));
  const typename V::F to_unit = V::set1(softcap * D::kUnit);
  for (int64_t j = begin; j < end; j += 16) {
    V::store(scores + j, V::mul(to_unit, tanh16<V>(V::mul(V::load(scores + j), from_unit))));
  }
}

// score loses slope * the distance to the token, which is at position `own` of the span.
template <class D>
KTX_INLINE void slope_scores(float* scores, int64_t begin, int64_t end, float slope, int64_t own) {
  using V = typename D::V;
  static constexpr float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const typename V::F lanes = V::load(kLanes), down = V::set1(-slope);
  for (int64_t j = begin; j < end; j += 16) {
    const typename V::F ahead = V::add(V::set1(static_cast<float>(j - own)), lanes);
    const typename V::F distance = V::max(ahead, V::sub(V::zero(), ahead));
    V::store(scores + j, V::fma(distance, down, V::load(scores + j)));
  }
}

// Scores become weights exp(score - maximum), and their sums and maxima the rows'. Positions that a
// row does not see weigh nothing. Rows that see none stay as they are.
template <class D, int R>
KTX_INLINE void weights_of(Scores* scores, const Seen<R>& seen, Row<D>* rows) {
  using V = typename D::V;
  // Lane i of a load at kBegins + 16 - n is 0 for i < n, else 1.
  static constexpr float kBegins[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  // (All maxima first: one waits for no other's.)
  for (int r = 0; r < R; ++r) {
    const int64_t begin = seen.row_begin[r], end = seen.row_end[r], block = begin / 16 * 16;
    if (end == 0) continue;
    V::store(scores[r] + end, V::set1(-__builtin_inff()));
    for (int64_t j = block; j < begin; ++j) scores[r][j] = -__builtin_inff();
    typename V::F m = V::load(scores[r] + block);
    for (int64_t j = block + 16; j < end; j += 16) m = V::max(m, V::load(scores[r] + j));
    rows[r].largest = V::max_of(m);
  }
  for (int r = 0; r < R; ++r) {
    const int64_t begin = seen.row_begin[r], end = seen.row_end[r], block = begin / 16 * 16;
    if (end == 0) continue;
    const typename V::F shift = V::set1(rows[r].largest);
    typename V::F sum = V::zero();
    for (int64_t j = seen.begin; j < block; j += 16) D::store_weights(scores[r], j, sum);
    for (int64_t j = block; j < end; j += 16) {
      typename V::F p = D::exp_of(V::sub(V::load(scores[r] + j), shift));
      if (j < begin) p = V::mul(p, V::load(kBegins + 16 - (begin - j)));
      D::store_weights(scores[r], j, p);
      sum = V::add(sum, p);
    }
    rows[r].sum = V::sum(sum);
  }
}

// Columns [d, d + 16 * N) of o, or the last `part` of them when N is 1, take the positions
// [from, to); what they have of those before is in o. All rows take the positions up to `all`, and
// those behind them the rows that see them.
template <class D, int R, int N>
KTX_INLINE void weigh_columns(const Span<D>& span, const Row<D>* rows, const Scores* scores,
                              const Seen<R>& seen, int64_t from, int64_t all, int64_t to, int64_t d,
                              int64_t part) {
  using V = typename D::V;
  const typename D::Elem* values = span.values + d;
  typename V::F sum[R][N];
  KTX_UNROLL
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      const float* o = rows[r].o + d + 16 * n;
      sum[r][n] = from == seen.begin ? V::zero() : part < 16 ? V::load_part(o, part) : V::load(o);
    }
  }
  for (int64_t step = from / D::kCols; step < all / D::kCols; ++step) {
    const int64_t j = D::in_order(step);
    typename D::W v[N];
    for (int n = 0; n < N; ++n) v[n] = D::load(values + j * span.value_stride + 16 * n);
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      const typename D::W p = D::set1(D::weights(scores[r]) + j);
      for (int n = 0; n < N; ++n) sum[r][n] = D::fma(v[n], p, sum[r][n]);
    }
  }
  for (int64_t j = all; j < to; j += D::kGroup) {
    const typename D::Elem* v = values + j / D::kCols * span.value_stride;
    KTX_UNROLL
    for (int r = 0; r < R; ++r) {
      if (j >= seen.row_end[r]) continue;
      const typename D::Elem* p = D::weights(scores[r]) + j / D::kCols;
      for (int n = 0; n < N; ++n) {
        sum[r][n] = D::last(p, v + 16 * n, span.value_stride, j + 1 < seen.row_end[r], sum[r][n]);
      }
    }
  }
  KTX_UNROLL
  for (int r = 0; r < R; ++r) {
    if (seen.row_end[r] == 0) continue;
    float* o = rows[r].o + d;
    for (int n = 0; n < N; ++n) {
      if (part < 16) {
        V::store_part(o, part, sum[r][n]);
      } else {
        V::store(o + 16 * n, sum[r][n]);
      }
    }
  }
}

// `from` is seen.begin or a multiple of kStripe.
template <class D, int R>
KTX_INLINE void weigh_values(const Span<D>& span, int64_t value_dim, const Row<D>* rows,
                             const Scores* scores, const Seen<R>& seen, int64_t from, int64_t to) {
  constexpr int N = kVectors<typename D::V, R>;
  int64_t all = to;
  for (int r = 0; r < R; ++r) all = seen.row_end[r] < all ? seen.row_end[r] : all;
  all = all < from ? from : all / D::kGroup * D::kGroup;
  int64_t d = 0;
  for (; d + 16 * N <= value_dim; d += 16 * N) {
    weigh_columns<D, R, N>(span, rows, scores, seen, from, all, to, d, 16);
  }
  for (; d < value_dim; d += 16) {
    const int64_t left = value_dim - d;
    weigh_columns<D, R, 1>(span, rows, scores, seen, from, all, to, d, left < 16 ? left : 16);
  }
}

// Scores of a group of R rows, which sees one position at least of the span from `begin` on, become
// weights.
template <class D, int R>
KTX_INLINE void weigh_scores(Scores* scores, const AttentionAttrs& attrs, const Seen<R>& seen,
                             int64_t begin, Row<D>* rows) {
  for (int r = 0; attrs.softcap > 0 && r < R; ++r) {
    cap_scores<D>(scores[r], seen.begin, seen.row_end[r], attrs.softcap);
  }
  for (int r = 0; attrs.alibi > 0 && r < R; ++r) {
    slope_scores<D>(scores[r], seen.begin, seen.row_end[r], rows[r].slope, rows[r].own - begin);
  }
  weights_of<D, R>(scores, seen, rows);
}

// A group of R rows takes the positions of the span that it sees, one at least.
template <class D, int R>
void take_positions(const Span<D>& span, const AttentionAttrs& attrs, int64_t begin, Row<D>* rows,
                    const Seen<R>& seen) {
  alignas(64) Scores scores[R];
  score_rows<D, R>(span, attrs.scale, rows, seen.begin, seen.end, scores);
  weigh_scores<D, R>(scores, attrs, seen, begin, rows);
  weigh_values<D, R>(span, attrs.value_dim, rows, scores, seen, seen.begin, seen.end);
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

// R rows of `stride` elements, of which `steps` are taken, one of each after the other.
template <int R>
KTX_INLINE void interleave(const float* rows, int64_t stride, int64_t steps, float* out) {
  static_assert(R % 4 == 0);
  for (int r = 0; r < R; r += 4) {
    for (int64_t d = 0; d < steps; d += 4) {
      __m128 x[4];
      for (int i = 0; i < 4; ++i) x[i] = _mm_loadu_ps(rows + (r + i) * stride + d);
      _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(out + (d + i) * R + r, x[i]);
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
