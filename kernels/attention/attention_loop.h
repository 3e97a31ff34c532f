// Attention over a vector policy (simd/README.md).
//
// A tile is some tokens of one sequence times the q heads of one KV head: rows that
// read the same cache. Each piece of 64 positions is turned into floats in scratch
// once, the keys transposed, and then every row of the tile takes it, a group of rows
// at a time (attention_piece.h). After each span the rows' sums join their totals.
//
// Included by attention_<isa>.cc only.
#pragma once

#include "kernels/attention/attention_piece.h"
#include "kernels/attention/kv_row.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kSpan = kAttentionSpan;
constexpr int64_t kTileRows = kAttentionRows;

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

// This thread's memory, as attention_scratch_bytes() counts it.
struct Scratch {
  int64_t key_pad, value_pad;
  float* rows;    // keys as they lie: [kPiece][key_pad], or 8 rows at a time
  float* keys;    // transposed: [key_pad][kPiece]
  float* values;  // [kPiece][value_pad]
  float* totals;  // [kTileRows][value_pad]
  float* q;       // of groups whose q vectors are interleaved: [kTileRows][key_pad]

  explicit Scratch(const AttentionArgs& a)
      : key_pad(pad16(a.attrs.key_dim)), value_pad(pad16(a.attrs.value_dim)) {
    rows = reinterpret_cast<float*>(a.scratch);
    keys = rows + (a.attrs.value_in_key ? kPiece : 8) * key_pad;
    values = keys + kPiece * key_pad;
    totals = values + (a.attrs.value_in_key ? 0 : kPiece * value_pad);
    q = totals + kTileRows * value_pad;
  }
};

struct Tile {
  const AttentionArgs& args;
  const Scratch& scratch;
  int64_t kv_head;
  int64_t token_begin, token_end;  // of one sequence
  int64_t head_begin, head_end;    // q heads

  int64_t heads() const { return head_end - head_begin; }
  int64_t rows() const { return (token_end - token_begin) * heads(); }
  int64_t token(int64_t row) const { return token_begin + row / heads(); }
  int64_t head(int64_t row) const { return head_begin + row % heads(); }
  int64_t positions(int64_t row) const { return int64_t{args.kv.position[token(row)]} + 1; }
  float* y(int64_t row) const {
    return args.y + token(row) * args.y_stride + head(row) * args.attrs.value_dim;
  }
  float* partial(int64_t row, int64_t span) const {
    return args.partials + ((token(row) * args.attrs.heads + head(row)) * args.spans + span) *
                               attention_partial_floats(args.attrs);
  }
};

// Rows of a piece in the cache: neighbours when the piece lies in one block, which
// spares two divisions a row.
struct CacheRows {
  const Tile& tile;
  const std::byte* first_row;
  int64_t row_bytes;
  int64_t first;
  bool of_keys, neighbours;

  CacheRows(const Tile& tile, int64_t first, int64_t count, bool of_keys)
      : tile(tile), first(first), of_keys(of_keys) {
    const KvLayout& layout = tile.args.kv.layout;
    row_bytes = of_keys ? layout.key_row_bytes() : layout.value_row_bytes();
    neighbours = first % layout.block_tokens + count <= layout.block_tokens;
    first_row = at_position(first);
  }
  const std::byte* at_position(int64_t position) const {
    const KvView& kv = tile.args.kv;
    const int32_t sequence = kv.sequence[tile.token_begin];
    return of_keys ? key_row(kv, sequence, tile.kv_head, position)
                   : value_row(kv, sequence, tile.kv_head, position);
  }
  const std::byte* operator[](int64_t j) const {
    return neighbours ? first_row + j * row_bytes : at_position(first + j);
  }
};

// Positions [first, first + count) as floats. What stands behind them is left from
// before: its scores are dropped.
template <class V>
KTX_INLINE Piece load_piece(const Tile& tile, int64_t first, int64_t count) {
  const AttentionAttrs& attrs = tile.args.attrs;
  const KvType type = tile.args.kv.layout.type;
  const Scratch& s = tile.scratch;
  const bool in_key = attrs.value_in_key != 0;
  const CacheRows keys(tile, first, count, true);
  for (int64_t j = 0; j < count; j += 8) {
    float* rows = s.rows + (in_key ? j * s.key_pad : 0);
    for (int64_t i = 0; i < 8 && j + i < count; ++i) {
      row_to_float<V>(type, keys[j + i], attrs.key_dim, rows + i * s.key_pad);
    }
    for (int64_t d = 0; d < s.key_pad; d += 8) {
      transpose8(rows + d, s.key_pad, s.keys + d * kPiece + j);
    }
  }
  if (in_key) return {s.keys, s.rows, nullptr, s.key_pad};
  const CacheRows values(tile, first, count, false);
  // One group of rows takes the values as they lie.
  if (type == KvType::F16 && values.neighbours && attrs.value_dim % 16 == 0 &&
      tile.rows() <= kFewRows<V>) {
    return {s.keys, nullptr, reinterpret_cast<const uint16_t*>(values[0]), attrs.value_dim};
  }
  for (int64_t j = 0; j < count; ++j) {
    row_to_float<V>(type, values[j], attrs.value_dim, s.values + j * s.value_pad);
  }
  return {s.keys, s.values, nullptr, s.value_pad};
}

// All rows take the positions [begin, end) that they may see. Rows begin anew.
template <class V>
void take_span(const Tile& tile, int64_t begin, int64_t end, Row* rows) {
  const AttentionArgs& a = tile.args;
  for (int64_t r = 0; r < tile.rows(); ++r) {
    rows[r].largest = -__builtin_inff();
    rows[r].sum = 0;
    __builtin_memset(rows[r].o, 0, static_cast<size_t>(a.attrs.value_dim) * sizeof(float));
  }
  for (int64_t first = begin; first < end; first += kPiece) {
    const Piece piece = load_piece<V>(tile, first, end - first < kPiece ? end - first : kPiece);
    each_group<V>(0, tile.rows(), [&](int64_t r, auto size) KTX_ALWAYS_INLINE {
      constexpr int R = decltype(size)::value;
      int64_t count[R], most = 0;
      for (int i = 0; i < R; ++i) {
        const int64_t seen = rows[r + i].positions - first;
        count[i] = seen < kPiece ? seen : kPiece;
        most = count[i] > most ? count[i] : most;
      }
      if (most > 0) take_piece<V, R>(piece, a.attrs, rows + r, count);
    });
  }
}

// A row's sums after a span join those of the spans before.
template <class V>
KTX_INLINE void join(Row& total, const float* o, float largest, float sum, int64_t n) {
  alignas(64) float now[16] = {total.largest}, next[16] = {largest};
  Factors f;
  factors_of<V>(now, next, &f, 1);
  total.sum = total.sum * f.keep + sum * f.take;
  total.largest = now[0];
  merge<V>(total.o, o, n, f.keep, f.take);
}

KTX_INLINE void copy_row(float* to, const float* from, int64_t n) {
  __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// The tile's q vectors, with `o` for what o(row) says; returns the positions of the
// longest row.
template <class V, class Place>
KTX_INLINE int64_t make_rows(const Tile& tile, Row* rows, const Place& o) {
  const AttentionArgs& a = tile.args;
  int64_t longest = 0;
  for (int64_t r = 0; r < tile.rows(); ++r) {
    rows[r].q = a.q + tile.token(r) * a.q_stride + tile.head(r) * a.attrs.key_dim;
    rows[r].o = o(r);
    rows[r].positions = tile.positions(r);
    longest = rows[r].positions > longest ? rows[r].positions : longest;
  }
  each_group<V>(0, tile.rows(), [&](int64_t r, auto size) KTX_ALWAYS_INLINE {
    constexpr int R = decltype(size)::value;
    if constexpr (kInterleaved<V, R>) {
      float* q = tile.scratch.q + r * tile.scratch.key_pad;
      interleave<R>(rows + r, a.attrs.key_dim, q);
      rows[r].q = q;
    }
  });
  return longest;
}

template <class V>
void attend_whole(const Tile& tile) {
  const int64_t n = tile.args.attrs.value_dim;
  Row rows[kTileRows], totals[kTileRows];
  const int64_t longest = make_rows<V>(tile, rows, [&](int64_t r) { return tile.y(r); });
  for (int64_t begin = 0; begin < longest; begin += kSpan) {
    take_span<V>(tile, begin, longest < begin + kSpan ? longest : begin + kSpan, rows);
    for (int64_t r = 0; r < tile.rows(); ++r) {
      if (begin == 0) {
        totals[r] = rows[r];
        totals[r].o = tile.scratch.totals + r * tile.scratch.value_pad;
        copy_row(totals[r].o, rows[r].o, n);
      } else if (rows[r].positions > begin) {
        join<V>(totals[r], rows[r].o, rows[r].largest, rows[r].sum, n);
      }
    }
  }
  for (int64_t r = 0; r < tile.rows(); ++r) {
    scale_row<V>(tile.y(r), totals[r].o, n, 1 / totals[r].sum);
  }
}

template <class V>
void attend_one_span(const Tile& tile) {
  const AttentionArgs& a = tile.args;
  Row rows[kTileRows];
  const int64_t longest =
      make_rows<V>(tile, rows, [&](int64_t r) { return tile.partial(r, a.span); });
  const int64_t begin = a.span * kSpan;
  take_span<V>(tile, begin, longest < begin + kSpan ? longest : begin + kSpan, rows);
  for (int64_t r = 0; r < tile.rows(); ++r) {
    rows[r].o[a.attrs.value_dim] = rows[r].largest;
    rows[r].o[a.attrs.value_dim + 1] = rows[r].sum;
  }
}

template <class V>
void merge_spans(const Tile& tile) {
  const int64_t n = tile.args.attrs.value_dim;
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const float* first = tile.partial(r, 0);
    Row total = {nullptr, tile.positions(r), tile.y(r), first[n], first[n + 1]};
    copy_row(total.o, first, n);
    for (int64_t span = 1; span * kSpan < total.positions; ++span) {
      const float* next = tile.partial(r, span);
      join<V>(total, next, next[n], next[n + 1], n);
    }
    scale_row<V>(total.o, total.o, n, 1 / total.sum);
  }
}

template <class V>
void attend_tile(const Tile& tile) {
  if (tile.args.part == AttentionPart::Whole) return attend_whole<V>(tile);
  if (tile.args.part == AttentionPart::OneSpan) return attend_one_span<V>(tile);
  merge_spans<V>(tile);
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
  const Scratch scratch(a);
  for (int64_t head = a.head_begin; head < a.head_end;) {
    const int64_t kv_head = head / heads_per_kv;
    int64_t head_end = (kv_head + 1) * heads_per_kv;
    head_end = head_end < a.head_end ? head_end : a.head_end;
    if (head_end - head > kTileRows) head_end = head + kTileRows;
    for (int64_t t = a.token_begin; t < a.token_end;) {
      const int64_t end = run_of_sequence(a, t, kTileRows / (head_end - head));
      attend_tile<V>({a, scratch, kv_head, t, end, head, head_end});
      t = end;
    }
    head = head_end;
  }
}

}  // namespace
}  // namespace ktx::kernels
