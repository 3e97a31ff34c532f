// Attention over operands of attention_dots.h.
//
// A tile is some tokens of one sequence times the q heads of one KV head: rows that
// read the same cache. Each span of 256 positions is turned into elements in scratch
// once, the keys transposed, and then every row of the tile takes it, a group of rows
// at a time (attention_span.h), and adds what it has of it to its total.
//
// Included by attention_<isa>.cc only.
#pragma once

#include "kernels/attention/attention_span.h"
#include "kernels/attention/kv_row.h"
#include "lib/target/row_prefetch.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kTileRows = kAttentionRows;
constexpr int64_t kTurned = 16;  // rows that lie in scratch until they are transposed

KTX_INLINE int64_t pad32(int64_t n) {
  return (n + 31) / 32 * 32;
}

// Columns [i, i + 16) of a row of the cache, or of a q vector; zeros behind `dim`.
template <class V, KvType type>
KTX_INLINE typename V::F columns(const std::byte* row, int64_t i, int64_t dim) {
  const int64_t left = dim - i;
  if (left <= 0) return V::zero();
  if constexpr (type == KvType::F32) {
    const float* in = reinterpret_cast<const float*>(row) + i;
    return left >= 16 ? V::load(in) : V::load_part(in, left);
  } else if constexpr (type == KvType::F16) {
    const uint16_t* in = reinterpret_cast<const uint16_t*>(row) + i;
    if (left >= 16) return V::load_half(in);
    uint16_t part[16] = {};
    __builtin_memcpy(part, in, static_cast<size_t>(left) * sizeof(uint16_t));
    return V::load_half(part);
  } else {
    // Blocks are whole in memory; what they hold past dim is zero.
    const std::byte* block = row + i / 32 * 34;
    const int8_t* codes = reinterpret_cast<const int8_t*>(block + 2 + i % 32);
    return V::mul(V::set1_half(block), V::load_int8(codes));
  }
}

// Elements [e, e + 16) of a row, and zeros behind `dim` numbers.
template <class D, KvType type>
KTX_INLINE typename D::W elements(const std::byte* row, int64_t e, int64_t dim) {
  using V = typename D::V;
  if constexpr (D::kCols == 1) {
    return D::template operand<type != KvType::F32>(columns<V, type>(row, e, dim));
  } else {
    return D::operands(columns<V, type>(row, 2 * e, dim), columns<V, type>(row, 2 * e + 16, dim));
  }
}

// The elements of a row from `e` on, filled up with zeros to `end`.
template <class D, KvType type>
KTX_INLINE void row_to_elements(const std::byte* row, int64_t e, int64_t end, int64_t dim,
                                typename D::Elem* out) {
  for (; (e + 16) * D::kCols <= dim; e += 16) {
    D::store(out + e, elements<D, type>(row, e, (e + 16) * D::kCols));
  }
  for (; e < end; e += 16) D::store(out + e, elements<D, type>(row, e, dim));
}

// Two rows' values, or one's and zeros, side by side as elements want it.
template <class D, KvType type>
KTX_INLINE void rows_to_elements(const std::byte* row, const std::byte* next, int64_t dim,
                                 int64_t stride, typename D::Elem* out) {
  using V = typename D::V;
  const auto store = [&](int64_t d, int64_t end) KTX_ALWAYS_INLINE {
    D::store_rows(out + d, stride, columns<V, type>(row, d, end),
                  next ? columns<V, type>(next, d, end) : V::zero());
  };
  int64_t d = 0;
  for (; d + 16 <= dim; d += 16) store(d, d + 16);
  if (d < dim) store(d, dim);
}

// The same of rows whose types may differ (entries and positions of compressed attention).
template <class V>
KTX_INLINE typename V::F columns_of(KvType type, const std::byte* row, int64_t i, int64_t dim) {
  return type == KvType::F16 ? columns<V, KvType::F16>(row, i, dim)
                             : columns<V, KvType::Q8_0>(row, i, dim);
}
template <class D>
void mixed_to_elements(const std::byte* row, KvType type, const std::byte* next, KvType next_type,
                       int64_t dim, int64_t stride, typename D::Elem* out) {
  using V = typename D::V;
  for (int64_t d = 0; d < dim; d += 16) {
    const int64_t end = d + 16 <= dim ? d + 16 : dim;
    D::store_rows(out + d, stride, columns_of<V>(type, row, d, end),
                  next ? columns_of<V>(next_type, next, d, end) : V::zero());
  }
}

// This thread's memory, as attention_scratch_bytes() counts it.
template <class D>
struct Scratch {
  using Elem = typename D::Elem;
  int64_t key_pad, value_pad;  // elements of a key, numbers of a value
  Elem* turned;                // [kTurned][key_pad]: keys or q vectors as they lie
  Elem* keys;                  // transposed: [kSpan / kStripe][key_pad][kStripe]
  Elem* values;                // [kSpan / kCols][value_pad]
  Elem* q;                     // [kTileRows][key_pad], some interleaved
  float* totals;               // [kTileRows][value_pad]

  explicit Scratch(const AttentionArgs& a)
      : key_pad(pad32(a.attrs.key_dim) / D::kCols), value_pad(pad32(a.attrs.value_dim)) {
    turned = reinterpret_cast<Elem*>(a.scratch);
    keys = turned + kTurned * key_pad;
    values = keys + kSpan * key_pad;
    q = values + kSpan / D::kCols * value_pad;
    totals = reinterpret_cast<float*>(q + kTileRows * key_pad);
  }
};

template <class D>
struct Tile {
  const AttentionArgs& args;
  const Scratch<D>& scratch;
  int64_t kv_head;
  int64_t token_begin, token_end;  // of one sequence
  int64_t head_begin, head_end;    // q heads

  int64_t heads() const { return head_end - head_begin; }
  int64_t rows() const { return (token_end - token_begin) * heads(); }
  int64_t token(int64_t row) const { return token_begin + row / heads(); }
  int64_t head(int64_t row) const { return head_begin + row % heads(); }
  int64_t first(int64_t row) const {
    return first_position(args.attrs, args.kv.position[token(row)]);
  }
  int64_t positions(int64_t row) const { return last_seen(args, token(row)) + 1; }
  float* y(int64_t row) const {
    return args.y + token(row) * args.y_stride + head(row) * args.attrs.value_dim;
  }
  float* partial(int64_t row, int64_t span) const {
    return args.partials +
           ((token(row) * args.attrs.heads + head(row)) * args.spans + span - args.first_span) *
               attention_partial_floats(args.attrs);
  }
};

// Rows of positions from `first` on, in the cache. Those of a block are neighbours, which spares
// two divisions a row; chosen positions are not.
class CacheRows {
 public:
  CacheRows(const AttentionArgs& a, int64_t token, int64_t kv_head, int64_t first, bool of_keys)
      : args_(a),
        token_(token),
        sequence_(a.kv.sequence[token]),
        kv_head_(kv_head),
        first_(first),
        of_keys_(of_keys) {
    row_bytes_ = of_keys ? a.kv.layout.key_row_bytes() : a.kv.layout.value_row_bytes();
    type_ = a.kv.layout.type;
  }
  const std::byte* operator[](int64_t j) {
    if (j < begin_ || j >= end_) find_block(j);
    return rows_ + (j - begin_) * row_bytes_;
  }
  int64_t row_bytes() const { return row_bytes_; }
  // Number of adjacent rows from row j on, itself included; j is the row looked up last.
  int64_t together(int64_t j) const { return end_ - j; }
  KvType type() const { return type_; }  // of the last row looked up
  // Whether neighbours in the list may be anywhere.
  bool scattered() const { return args_.chosen && args_.chosen_block == 1; }

 private:
  void find_block(int64_t j) {
    const bool entry = is_entry(args_, token_, first_ + j);
    const KvView& kv = entry ? args_.entries : args_.kv;
    const int64_t block_tokens = kv.layout.block_tokens;
    const int64_t position = seen_position(args_, token_, kv_head_, first_ + j);
    begin_ = j;
    end_ = j + block_tokens - position % block_tokens;
    if (args_.entries_of) {
      const int64_t left = args_.chosen ? 1 : args_.entries_of[token_] - (first_ + j);
      if (entry && j + left < end_) end_ = j + left;
      row_bytes_ = kv.layout.key_row_bytes();
      type_ = kv.layout.type;
    } else if (args_.chosen) {  // neighbours in the list are neighbours in its block
      const int64_t block = args_.chosen_block;
      const int64_t left = block == 1 ? 1 : block - (first_ + j) % block;
      end_ = j + left < end_ ? j + left : end_;
    }
    rows_ = of_keys_ ? key_row(kv, sequence_, kv_head_, position)
                     : value_row(kv, sequence_, kv_head_, position);
  }

  const AttentionArgs& args_;
  int64_t token_;
  int32_t sequence_;
  int64_t kv_head_, first_;
  bool of_keys_;
  int64_t row_bytes_ = 0;
  KvType type_ = KvType::F32;
  const std::byte* rows_ = nullptr;  // of positions [begin_, end_) from first_ on
  int64_t begin_ = 0, end_ = 0;
};

// Prefetches rows of the cache some 8 KiB before they are read: a span's keys, then its values,
// also in the block that follows (no prefetcher knows where that one is), on processors that gain
// by it (stream_prefetch.h). Single chosen positions are not prefetched.
class RowsAhead {
 public:
  // Positions [begin, end), counted from the first one of `keys` and `values`; null: keys alone.
  RowsAhead(const CacheRows& keys, const CacheRows* values, int64_t begin, int64_t end)
      : keys_(keys), values_(values ? *values : keys), begin_(begin), end_(end) {
    const int64_t row = keys.row_bytes() < kBytesAhead ? keys.row_bytes() : kBytesAhead;
    ahead_ = kBytesAhead / row;
    if (into_ != RowPrefetch::None && !keys.scattered()) last_ = values ? 2 * end - begin : end;
  }
  // While keys [j, j + count) are in work, or values that are not among the keys.
  KTX_ALWAYS_INLINE void ask_from_keys(int64_t j, int64_t count) { ask(j + ahead_, count); }
  KTX_ALWAYS_INLINE void ask_from_values(int64_t j, int64_t count) {
    ask(end_ - begin_ + j + ahead_, count);
  }

 private:
  static constexpr int64_t kBytesAhead = 8192;

  KTX_ALWAYS_INLINE void ask(int64_t i, int64_t count) {
    for (const int64_t to = i + count < last_ ? i + count : last_; i < to; ++i) {
      if (i < end_) {
        ask_row(keys_, i);
      } else {
        ask_row(values_, i - end_ + begin_);
      }
    }
  }
  KTX_ALWAYS_INLINE void ask_row(CacheRows& rows, int64_t i) {
    const std::byte* row = rows[i];
    for (int64_t at = 0; at < rows.row_bytes(); at += 64) {
      if (into_ == RowPrefetch::FirstCache) {
        __builtin_prefetch(row + at);
      } else {
        __builtin_prefetch(row + at, 0, 2);
      }
    }
  }

  CacheRows keys_, values_;
  int64_t begin_, end_;
  int64_t ahead_, last_ = 0;
  RowPrefetch into_ = row_prefetch();
};

KTX_INLINE float* as_floats(float* p) {
  return p;
}
// (For moves: elements of 4 bytes, whatever they are.)
KTX_INLINE float* as_floats(uint32_t* p) {
  return reinterpret_cast<float*>(p);
}

// Some of 16 keys as elements in `turned`, each from element `from` on.
template <class D, KvType type>
KTX_INLINE void turn_keys(const Scratch<D>& s, CacheRows& keys, int64_t j, int64_t count,
                          int64_t from, int64_t dim) {
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* row = keys[j + i];
    typename D::Elem* out = s.turned + i * s.key_pad;
    if (type != KvType::F32 && keys.type() != type) {
      constexpr KvType kOther = type == KvType::F16 ? KvType::Q8_0 : KvType::F16;
      row_to_elements<D, kOther>(row, from, s.key_pad, dim, out);
    } else {
      row_to_elements<D, type>(row, from, s.key_pad, dim, out);
    }
  }
}

// The keys [from, to) of a span as elements; `from` is a multiple of 16. What stands before and
// behind them is left from before: its scores are dropped. Neighbours in the cache are transposed
// in registers, others and a rest of their columns through `turned`.
template <class D, KvType type>
KTX_INLINE void load_keys(const Scratch<D>& s, int64_t dim, int64_t from, int64_t to,
                          CacheRows& keys, RowsAhead& ahead) {
  using V = typename D::V;
  for (int64_t j = from; j < to; j += 16) {
    const int64_t n = to - j < 16 ? to - j : 16;
    ahead.ask_from_keys(j, n);
    const std::byte* rows = keys[j];
    typename D::Elem* out = s.keys + j / kStripe * kStripe * s.key_pad + j % kStripe;
    int64_t e = 0;
    if (n == 16 && keys.together(j) >= 16 && keys.type() == type) {
      const int64_t stride = keys.row_bytes();
      for (; (e + 16) * D::kCols <= dim; e += 16) {
        const auto row = [&](int i) KTX_ALWAYS_INLINE {
          return D::as_floats(elements<D, type>(rows + i * stride, e, (e + 16) * D::kCols));
        };
        V::transpose16(row, kStripe, as_floats(out + e * kStripe));
      }
    }
    if (e == s.key_pad) continue;
    turn_keys<D, type>(s, keys, j, n, e, dim);
    for (; e < s.key_pad; e += 16) {
      const float* turned = as_floats(s.turned + e);
      const auto row = [&](int i) KTX_ALWAYS_INLINE { return V::load(turned + i * s.key_pad); };
      V::transpose16(row, kStripe, as_floats(out + e * kStripe));
    }
  }
}

// The values [from, to) of a span as elements; `from` is a multiple of 16.
template <class D, KvType type>
KTX_INLINE void load_values(const Scratch<D>& s, int64_t dim, int64_t from, int64_t to,
                            CacheRows& values, RowsAhead& ahead) {
  for (int64_t j = from; j < to;) {
    typename D::Elem* out = s.values + j / D::kCols * s.value_pad;
    const std::byte* row = values[j];
    const KvType row_type = values.type();
    const int64_t together = values.together(j) < to - j ? values.together(j) : to - j;
    if (together < 2 || row_type != type) {
      const std::byte* next = j + 1 < to ? values[j + 1] : nullptr;
      if (type != KvType::F32 && (row_type != type || values.type() != type)) {
        mixed_to_elements<D>(row, row_type, next, values.type(), dim, s.value_pad, out);
      } else {
        rows_to_elements<D, type>(row, next, dim, s.value_pad, out);
      }
      j += 2;
      continue;
    }
    const int64_t n = together < 16 ? together / 2 * 2 : 16, stride = values.row_bytes();
    ahead.ask_from_values(j, n);
    for (int64_t i = 0; i < n; i += 2, row += 2 * stride, out += 2 / D::kCols * s.value_pad) {
      rows_to_elements<D, type>(row, row + stride, dim, s.value_pad, out);
    }
    j += n;
  }
}

// What rows of a group see of the positions [begin, end).
template <class D, int R>
KTX_INLINE Seen<R> seen_of(const Row<D>* rows, int64_t begin, int64_t end) {
  Seen<R> seen;
  seen.begin = end - begin, seen.end = 0;
  for (int i = 0; i < R; ++i) {
    const int64_t from = rows[i].first > begin ? rows[i].first - begin : 0;
    const int64_t all = rows[i].positions - begin;
    const int64_t to = all < end - begin ? all : end - begin;
    seen.row_begin[i] = from;
    seen.row_end[i] = from < to ? to : 0;
    if (from >= to) continue;
    seen.begin = from < seen.begin ? from : seen.begin;
    seen.end = to > seen.end ? to : seen.end;
  }
  seen.begin = seen.begin / 16 * 16;
  return seen;
}

// All rows take what they see of the positions [begin, end). Rows begin anew. Few rows take a
// stripe at a time, from the first cache, and while it arrives; many take all at once, so that the
// scores of a group stay there.
template <class D, KvType type>
void take_span_of(const Tile<D>& tile, int64_t begin, int64_t end, Row<D>* rows) {
  using V = typename D::V;
  const AttentionArgs& a = tile.args;
  const AttentionAttrs& attrs = a.attrs;
  const Scratch<D>& s = tile.scratch;
  int64_t first = end;
  for (int64_t r = 0; r < tile.rows(); ++r) first = rows[r].first < first ? rows[r].first : first;
  const int64_t skip = first > begin ? (first - begin) / 16 * 16 : 0, count = end - begin;
  const bool in_key = attrs.value_in_key != 0;
  CacheRows keys(a, tile.token_begin, tile.kv_head, begin, true);
  CacheRows values(a, tile.token_begin, tile.kv_head, begin, in_key);
  RowsAhead ahead(keys, in_key ? nullptr : &values, skip, count);
  const int64_t steps = (attrs.key_dim + D::kGroup - 1) / D::kGroup * D::kGroup / D::kCols;
  const Span<D> span = {s.keys, s.values, steps, s.key_pad, s.value_pad};
  const auto each = [&](const auto& take) KTX_ALWAYS_INLINE {
    each_group<V>(0, tile.rows(), [&](int64_t r, auto size) KTX_ALWAYS_INLINE {
      const auto seen = seen_of<D, decltype(size)::value>(rows + r, begin, end);
      if (seen.end > 0) take(r, size, seen);
    });
  };
  if (tile.rows() > kMostRows<V>) {
    load_keys<D, type>(s, attrs.key_dim, skip, count, keys, ahead);
    load_values<D, type>(s, attrs.value_dim, skip, count, values, ahead);
    return each([&](int64_t r, auto size, const auto& seen) KTX_ALWAYS_INLINE {
      take_positions<D, decltype(size)::value>(span, attrs, begin, rows + r, seen);
    });
  }
  alignas(64) Scores scores[kMostRows<V>];
  const int64_t stripe = skip / kStripe * kStripe;
  for (int64_t j = stripe; j < count; j += kStripe) {
    const int64_t from = j < skip ? skip : j, to = j + kStripe < count ? j + kStripe : count;
    load_keys<D, type>(s, attrs.key_dim, from, to, keys, ahead);
    each([&](int64_t r, auto size, const auto& seen) KTX_ALWAYS_INLINE {
      score_rows<D, decltype(size)::value>(span, attrs.scale, rows + r,
                                           seen.begin < from ? from : seen.begin,
                                           seen.end < to ? seen.end : to, scores + r);
    });
  }
  each([&](int64_t r, auto size, const auto& seen) KTX_ALWAYS_INLINE {
    weigh_scores<D, decltype(size)::value>(scores + r, attrs, seen, begin, rows + r);
  });
  for (int64_t j = stripe; j < count; j += kStripe) {
    const int64_t from = j < skip ? skip : j, to = j + kStripe < count ? j + kStripe : count;
    load_values<D, type>(s, attrs.value_dim, from, to, values, ahead);
    each([&](int64_t r, auto size, const auto& seen) KTX_ALWAYS_INLINE {
      const int64_t begin_here = seen.begin < from ? from : seen.begin;
      const int64_t end_here = seen.end < to ? seen.end : to;
      if (begin_here >= end_here) return;
      weigh_values<D, decltype(size)::value>(span, attrs.value_dim, rows + r, scores + r, seen,
                                             begin_here, end_here);
    });
  }
}

template <class D>
void take_span(const Tile<D>& tile, int64_t begin, int64_t end, Row<D>* rows) {
  if constexpr (!D::kRounded) {
    take_span_of<D, KvType::F32>(tile, begin, end, rows);
  } else if (tile.args.kv.layout.type == KvType::F16) {
    take_span_of<D, KvType::F16>(tile, begin, end, rows);
  } else {
    take_span_of<D, KvType::Q8_0>(tile, begin, end, rows);
  }
}

// The span that holds a row's first position: where its total begins.
KTX_INLINE int64_t first_span_begin(int64_t first) {
  return first / kSpan * kSpan;
}

// Merges the online-softmax state of one span (maximum, sum, weighted values) into the running
// state of up to 16 rows; rows that end before `begin` or start in this span or later are left
// alone.
template <class D>
KTX_INLINE void join(Row<D>* totals, const Row<D>* rows, int64_t count, int64_t begin, int64_t n) {
  using V = typename D::V;
  alignas(64) float before[16] = {}, next[16] = {}, keep[16], take[16];
  for (int64_t r = 0; r < count; ++r) {
    before[r] = totals[r].largest;
    next[r] = rows[r].largest;
  }
  const typename V::F now = V::max(V::load(next), V::load(before));
  V::store(keep, D::exp_of(V::sub(V::load(before), now)));
  V::store(take, D::exp_of(V::sub(V::load(next), now)));
  V::store(next, now);
  for (int64_t r = 0; r < count; ++r) {
    if (totals[r].positions <= begin || totals[r].first >= begin) continue;
    totals[r].sum = totals[r].sum * keep[r] + rows[r].sum * take[r];
    totals[r].largest = next[r];
    merge<V>(totals[r].o, rows[r].o, n, keep[r], take[r]);
  }
}

KTX_INLINE void copy_row(float* to, const float* from, int64_t n) {
  __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// y = o / (sum of the weights), the weight of the head's sink among them.
template <class D>
KTX_INLINE void finish_row(const AttentionArgs& a, int64_t head, const Row<D>& total, float* y) {
  using V = typename D::V;
  float scale = 1 / total.sum;
  if (a.sinks != nullptr) {
    const float sink = a.sinks[head] * D::kUnit;
    const float largest = sink > total.largest ? sink : total.largest;
    alignas(64) float keep[16], weight[16];
    V::store(keep, D::exp_of(V::set1(total.largest - largest)));
    V::store(weight, D::exp_of(V::set1(sink - largest)));
    scale = keep[0] / (total.sum * keep[0] + weight[0]);
  }
  scale_row<V>(y, total.o, a.attrs.value_dim, scale);
}

// What the rows of a tile see: from the first position of all to the end of the longest row.
struct Reach {
  int64_t first = INT64_MAX, end = 0;
};

// The tile's q vectors, with `o` for what o(row) says.
template <class D, class Place>
KTX_INLINE Reach make_rows(const Tile<D>& tile, Row<D>* rows, const Place& o) {
  const AttentionArgs& a = tile.args;
  const Scratch<D>& s = tile.scratch;
  Reach reach;
  each_group<typename D::V>(0, tile.rows(), [&](int64_t first, auto size) KTX_ALWAYS_INLINE {
    constexpr int R = decltype(size)::value;
    constexpr bool kTogether = kInterleaved<typename D::V, R>;
    static_assert(R <= kTurned);
    typename D::Elem* q = s.q + first * s.key_pad;
    for (int i = 0; i < R; ++i) {
      const int64_t r = first + i;
      const int64_t seen = tile.first(r), positions = tile.positions(r);
      rows[r] = {kTogether ? q : q + i * s.key_pad, seen, positions, o(r), 0, 0};
      if (a.attrs.alibi > 0) {
        rows[r].slope = alibi_slope(a.attrs, tile.head(r)) * D::kUnit;
        rows[r].own = a.kv.position[tile.token(r)];
      }
      reach.first = seen < reach.first ? seen : reach.first;
      reach.end = positions > reach.end ? positions : reach.end;
      const float* in = a.q + tile.token(r) * a.q_stride + tile.head(r) * a.attrs.key_dim;
      row_to_elements<D, KvType::F32>(reinterpret_cast<const std::byte*>(in), 0, s.key_pad,
                                      a.attrs.key_dim, (kTogether ? s.turned : q) + i * s.key_pad);
    }
    if constexpr (kTogether) interleave<R>(as_floats(s.turned), s.key_pad, s.key_pad, as_floats(q));
  });
  return reach;
}

template <class D>
void attend_whole(const Tile<D>& tile) {
  const int64_t n = tile.args.attrs.value_dim;
  Row<D> rows[kTileRows], totals[kTileRows];
  const Reach reach = make_rows<D>(tile, rows, [&](int64_t r) { return tile.y(r); });
  for (int64_t r = 0; r < tile.rows(); ++r) {
    totals[r] = rows[r];
    totals[r].o = tile.scratch.totals + r * tile.scratch.value_pad;
  }
  const int64_t first = first_span_begin(reach.first);
  for (int64_t begin = first; begin < reach.end; begin += kSpan) {
    take_span<D>(tile, begin, reach.end < begin + kSpan ? reach.end : begin + kSpan, rows);
    for (int64_t r = 0; r < tile.rows(); ++r) {
      if (first_span_begin(rows[r].first) != begin) continue;
      totals[r].largest = rows[r].largest;
      totals[r].sum = rows[r].sum;
      copy_row(totals[r].o, rows[r].o, n);
    }
    for (int64_t r = 0; begin > first && r < tile.rows(); r += 16) {
      join<D>(totals + r, rows + r, tile.rows() - r < 16 ? tile.rows() - r : 16, begin, n);
    }
  }
  for (int64_t r = 0; r < tile.rows(); ++r) {
    finish_row<D>(tile.args, tile.head(r), totals[r], tile.y(r));
  }
}

template <class D>
void attend_one_span(const Tile<D>& tile) {
  const AttentionArgs& a = tile.args;
  Row<D> rows[kTileRows];
  const int64_t end =
      make_rows<D>(tile, rows, [&](int64_t r) { return tile.partial(r, a.span); }).end;
  const int64_t begin = a.span * kSpan;
  take_span<D>(tile, begin, end < begin + kSpan ? end : begin + kSpan, rows);
  for (int64_t r = 0; r < tile.rows(); ++r) {
    rows[r].o[a.attrs.value_dim] = rows[r].largest;
    rows[r].o[a.attrs.value_dim + 1] = rows[r].sum;
  }
}

template <class D>
void merge_spans(const Tile<D>& tile) {
  const int64_t n = tile.args.attrs.value_dim;
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const int64_t seen = tile.first(r);
    int64_t span = seen / kSpan;
    const float* first = tile.partial(r, span);
    Row<D> total = {nullptr, seen, tile.positions(r), tile.y(r), first[n], first[n + 1]};
    copy_row(total.o, first, n);
    for (++span; span * kSpan < total.positions; ++span) {
      float* o = tile.partial(r, span);
      const Row<D> next = {nullptr, 0, 0, o, o[n], o[n + 1]};
      join<D>(&total, &next, 1, span * kSpan, n);
    }
    finish_row<D>(tile.args, tile.head(r), total, total.o);
  }
}

template <class D>
void attend_tile(const Tile<D>& tile) {
  if (tile.args.part == AttentionPart::Whole) return attend_whole<D>(tile);
  if (tile.args.part == AttentionPart::OneSpan) return attend_one_span<D>(tile);
  merge_spans<D>(tile);
}

// Tokens from `begin` on that are of the same sequence, at most `limit`; one that reads chosen
// positions or entries is alone.
KTX_INLINE int64_t run_of_sequence(const AttentionArgs& a, int64_t begin, int64_t limit) {
  int64_t end = begin + 1;
  if (a.chosen || a.entries_of) return end;
  while (end < a.token_end && end - begin < limit && a.kv.sequence[end] == a.kv.sequence[begin]) {
    ++end;
  }
  return end;
}

template <class D>
void attention(const AttentionArgs& a) {
  const FlushSubnormals flush(D::kRounded);  // as vdpbf16ps always does
  const int64_t heads_per_kv = a.attrs.heads / a.attrs.kv_heads;
  const Scratch<D> scratch(a);
  for (int64_t head = a.head_begin; head < a.head_end;) {
    const int64_t kv_head = head / heads_per_kv;
    int64_t head_end = (kv_head + 1) * heads_per_kv;
    head_end = head_end < a.head_end ? head_end : a.head_end;
    if (head_end - head > kTileRows) head_end = head + kTileRows;
    for (int64_t t = a.token_begin; t < a.token_end;) {
      const int64_t end = run_of_sequence(a, t, kTileRows / (head_end - head));
      attend_tile<D>({a, scratch, kv_head, t, end, head, head_end});
      t = end;
    }
    head = head_end;
  }
}

}  // namespace
}  // namespace ktx::kernels
