// Attention over a vector policy (simd/README.md).
//
// A tile is some tokens of one sequence times the q heads of one KV head: rows that
// read the same cache. For each piece of 64 positions its keys and values are turned
// into floats in scratch, once, and then every row of the tile takes the piece:
//
//   score[j] = scale * (q . key[j])            one sum of 16 lanes per score
//   m = max score;  p[j] = exp(score[j] - m);  s = sum p
//   o = sum of p[j] * value[j], rising j
//   merge (m, s, o) into the row's (M, S, O):  O lives in y
//
// Included by attention_<isa>.cc only.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_row.h"
#include "kernels/simd/exp.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kPiece = kAttentionPiece;
constexpr int64_t kTileRows = 128;  // rows whose maximum and sum fit the stack

KTX_INLINE int64_t pad16(int64_t n) {
  return (n + 15) / 16 * 16;
}

template <class V>
KTX_INLINE void row_to_float(KvType type, const std::byte* row, int64_t dim, float* out) {
  int64_t i = 0;
  if (type == KvType::F32) {
    const float* in = reinterpret_cast<const float*>(row);
    for (; i + 16 <= dim; i += 16) V::store(out + i, V::load(in + i));
    if (i < dim) V::store(out + i, V::load_part(in + i, dim - i));
  } else if (type == KvType::F16) {
    const uint16_t* in = reinterpret_cast<const uint16_t*>(row);
    for (; i + 16 <= dim; i += 16) V::store(out + i, V::load_half(in + i));
    for (int64_t j = i; j < pad16(dim); ++j) out[j] = j < dim ? _cvtsh_ss(in[j]) : 0;
  } else {
    // Blocks are whole in memory; what they hold past dim is zero.
    for (; i < dim; i += 32, row += 34) {
      uint16_t half;
      __builtin_memcpy(&half, row, sizeof half);
      const typename V::F scale = V::set1(_cvtsh_ss(half));
      const int8_t* codes = reinterpret_cast<const int8_t*>(row + 2);
      V::store(out + i, V::mul(scale, V::load_int8(codes)));
      if (i + 16 < dim) V::store(out + i + 16, V::mul(scale, V::load_int8(codes + 16)));
    }
  }
}

// What a tile reads and where its pieces lie.
struct Tile {
  const AttentionArgs& args;
  int64_t kv_head;
  int64_t token_begin, token_end;  // of one sequence
  int64_t head_begin, head_end;    // q heads
  float* keys;                     // [kPiece][key_pad]
  float* values;                   // [kPiece][value_stride]
  int64_t key_pad;
  int64_t value_stride;
  float* o;  // [value_pad]
};

template <class V>
KTX_INLINE void load_piece(const Tile& tile, int64_t first, int64_t count) {
  const AttentionArgs& a = tile.args;
  const int32_t sequence = a.kv.sequence[tile.token_begin];
  for (int64_t j = 0; j < count; ++j) {
    row_to_float<V>(a.kv.layout.type, key_row(a.kv, sequence, tile.kv_head, first + j),
                    a.attrs.key_dim, tile.keys + j * tile.key_pad);
    if (a.attrs.value_in_key) continue;
    row_to_float<V>(a.kv.layout.type, value_row(a.kv, sequence, tile.kv_head, first + j),
                    a.attrs.value_dim, tile.values + j * tile.value_stride);
  }
}

// scores[0, count) of a row against the piece; the rest up to kPiece is -infinity.
template <class V>
KTX_INLINE void score_piece(const Tile& tile, const float* q, int64_t count, float* scores) {
  const int64_t dim = tile.args.attrs.key_dim, pad = tile.key_pad;
  const __m128 scale = _mm_set1_ps(tile.args.attrs.scale);
  int64_t j = 0;
  for (; j < count; j += 4) {
    // Rows past the count hold old floats of this scratch, whose scores are dropped.
    const float* k = tile.keys + j * pad;
    typename V::F s0 = V::zero(), s1 = V::zero(), s2 = V::zero(), s3 = V::zero();
    int64_t d = 0;
    for (; d + 16 <= dim; d += 16) {
      const typename V::F x = V::load(q + d);
      s0 = V::fma(x, V::load(k + d), s0);
      s1 = V::fma(x, V::load(k + pad + d), s1);
      s2 = V::fma(x, V::load(k + 2 * pad + d), s2);
      s3 = V::fma(x, V::load(k + 3 * pad + d), s3);
    }
    if (d < dim) {
      const typename V::F x = V::load_part(q + d, dim - d);
      s0 = V::fma(x, V::load(k + d), s0);
      s1 = V::fma(x, V::load(k + pad + d), s1);
      s2 = V::fma(x, V::load(k + 2 * pad + d), s2);
      s3 = V::fma(x, V::load(k + 3 * pad + d), s3);
    }
    _mm_storeu_ps(scores + j, _mm_mul_ps(V::sum4(s0, s1, s2, s3), scale));
  }
  for (j = count; j < kPiece; ++j) scores[j] = -__builtin_inff();
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

template <class V, int kVectors>
KTX_INLINE void weigh_columns(const Tile& tile, const float* weights, int64_t count, int64_t d) {
  typename V::F sum[kVectors];
  for (int c = 0; c < kVectors; ++c) sum[c] = V::zero();
  for (int64_t j = 0; j < count; ++j) {
    const typename V::F p = V::set1(weights[j]);
    const float* v = tile.values + j * tile.value_stride + d;
    for (int c = 0; c < kVectors; ++c) sum[c] = V::fma(p, V::load(v + 16 * c), sum[c]);
  }
  for (int c = 0; c < kVectors; ++c) V::store(tile.o + d + 16 * c, sum[c]);
}

// o = sum of weights[j] * value[j]
template <class V>
KTX_INLINE void weigh_values(const Tile& tile, const float* weights, int64_t count) {
  const int64_t pad = pad16(tile.args.attrs.value_dim);
  int64_t d = 0;
  for (; d + 64 <= pad; d += 64) weigh_columns<V, 4>(tile, weights, count, d);
  for (; d < pad; d += 16) weigh_columns<V, 1>(tile, weights, count, d);
}

// y = y * keep + o * take
template <class V>
KTX_INLINE void merge(float* y, const float* o, int64_t n, float keep, float take) {
  const typename V::F k = V::set1(keep), t = V::set1(take);
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) {
    V::store(y + d, V::fma(V::load(y + d), k, V::mul(V::load(o + d), t)));
  }
  if (d < n) {
    const typename V::F part = V::mul(V::load_part(o + d, n - d), t);
    V::store_part(y + d, n - d, V::fma(V::load_part(y + d, n - d), k, part));
  }
}

template <class V>
KTX_INLINE void scale_row(float* y, int64_t n, float by) {
  const typename V::F s = V::set1(by);
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) V::store(y + d, V::mul(V::load(y + d), s));
  if (d < n) V::store_part(y + d, n - d, V::mul(V::load_part(y + d, n - d), s));
}

struct RowState {
  float largest, sum;
};

template <class V>
KTX_INLINE void take_piece(const Tile& tile, const float* q, float* y, int64_t count,
                           RowState& row) {
  alignas(64) float weights[kPiece];
  score_piece<V>(tile, q, count, weights);
  float largest;
  const float sum = weights_of<V>(weights, &largest);
  weigh_values<V>(tile, weights, count);
  // Both factors from one exp: lane 0 keeps the old, lane 1 takes the new.
  const float now = row.largest > largest ? row.largest : largest;
  alignas(64) float factors[16] = {row.largest - now, largest - now};
  V::store(factors, exp16<V>(V::load(factors)));
  row.sum = row.sum * factors[0] + sum * factors[1];
  row.largest = now;
  merge<V>(y, tile.o, tile.args.attrs.value_dim, factors[0], factors[1]);
}

template <class V>
void attend_tile(const Tile& tile) {
  const AttentionArgs& a = tile.args;
  const int64_t heads = tile.head_end - tile.head_begin;
  RowState rows[kTileRows];
  int64_t last = 0;
  for (int64_t t = tile.token_begin; t < tile.token_end; ++t) {
    last = a.kv.position[t] > last ? a.kv.position[t] : last;
    for (int64_t h = 0; h < heads; ++h) {
      rows[(t - tile.token_begin) * heads + h] = {-__builtin_inff(), 0};
      __builtin_memset(a.y + t * a.y_stride + (tile.head_begin + h) * a.attrs.value_dim, 0,
                       static_cast<size_t>(a.attrs.value_dim) * sizeof(float));
    }
  }
  for (int64_t first = 0; first <= last; first += kPiece) {
    load_piece<V>(tile, first, last + 1 - first < kPiece ? last + 1 - first : kPiece);
    for (int64_t t = tile.token_begin; t < tile.token_end; ++t) {
      const int64_t left = int64_t{a.kv.position[t]} + 1 - first;
      if (left <= 0) continue;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t head = tile.head_begin + h;
        take_piece<V>(tile, a.q + t * a.q_stride + head * a.attrs.key_dim,
                      a.y + t * a.y_stride + head * a.attrs.value_dim,
                      left < kPiece ? left : kPiece, rows[(t - tile.token_begin) * heads + h]);
      }
    }
  }
  for (int64_t t = tile.token_begin; t < tile.token_end; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      scale_row<V>(a.y + t * a.y_stride + (tile.head_begin + h) * a.attrs.value_dim,
                   a.attrs.value_dim, 1 / rows[(t - tile.token_begin) * heads + h].sum);
    }
  }
}

// Tokens from `begin` on that are of the same sequence, at most `limit`.
KTX_INLINE int64_t run_of_sequence(const AttentionArgs& a, int64_t begin, int64_t limit) {
  int64_t end = begin + 1;
  while (end < a.token_end && end - begin < limit && a.kv.sequence[end] == a.kv.sequence[begin]) {
    ++end;
  }
  return end;
}

template <class V>
void attention(const AttentionArgs& a) {
  const int64_t heads_per_kv = a.attrs.heads / a.attrs.kv_heads;
  float* memory = reinterpret_cast<float*>(a.scratch);
  const int64_t key_pad = pad16(a.attrs.key_dim), value_pad = pad16(a.attrs.value_dim);
  float* keys = memory;
  float* values = keys + (kPiece + 1) * key_pad;
  float* o = values + (kPiece + 1) * value_pad;
  const bool shared = a.attrs.value_in_key != 0;
  for (int64_t head = a.head_begin; head < a.head_end;) {
    const int64_t kv_head = head / heads_per_kv;
    int64_t head_end = (kv_head + 1) * heads_per_kv;
    head_end = head_end < a.head_end ? head_end : a.head_end;
    if (head_end - head > kTileRows) head_end = head + kTileRows;
    int64_t tokens = kTileRows / (head_end - head);
    if (tokens > kAttentionTokens) tokens = kAttentionTokens;
    for (int64_t t = a.token_begin; t < a.token_end;) {
      const int64_t end = run_of_sequence(a, t, tokens);
      attend_tile<V>({a, kv_head, t, end, head, head_end, keys, shared ? keys : values, key_pad,
                      shared ? key_pad : value_pad, o});
      t = end;
    }
    head = head_end;
  }
}

}  // namespace
}  // namespace ktx::kernels
