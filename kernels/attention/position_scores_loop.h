// Scores of positions and of blocks over the spans of attention_span.h: the keys of a span stand
// transposed in scratch once for all tokens. Each group of heads adds to a token's scores what it
// has of positions; of blocks each head has scores of its own. Included by attention_<isa>.cc only.
#pragma once

#include "kernels/attention/attention_loop.h"
#include "kernels/attention/block_scores.h"
#include "kernels/attention/position_scores.h"

namespace ktx::kernels {
namespace {

// total += weight * max(0, scores)
template <class V>
KTX_INLINE void add_weighted(float* total, const float* scores, int64_t count, float weight) {
  const typename V::F w = V::set1(weight);
  for (int64_t j = 0; j < count; j += 16) {
    const typename V::F positive = V::max(V::zero(), V::load(scores + j));
    V::store(total + j, V::fma(w, positive, V::load(total + j)));
  }
}

template <class D>
KTX_INLINE Span<D> load_index_keys(const Tile<D>& tile, int64_t first, int64_t count) {
  const Scratch<D>& s = tile.scratch;
  const KvType type = tile.args.kv.layout.type;
  const int64_t dim = tile.args.attrs.key_dim;
  CacheRows keys(tile.args, tile.token_begin, tile.kv_head, first, true);
  RowsAhead ahead(keys, nullptr, 0, count);
  if (type == KvType::F32) load_keys<D, KvType::F32>(s, dim, 0, count, keys, ahead);
  if (type == KvType::F16) load_keys<D, KvType::F16>(s, dim, 0, count, keys, ahead);
  if (type == KvType::Q8_0) load_keys<D, KvType::Q8_0>(s, dim, 0, count, keys, ahead);
  return {s.keys, s.values, dim, s.key_pad, s.value_pad};
}

// Calls take(token, head, scores of positions [first, first + count)) for each token of `a` and
// head, token by token.
template <class V, class Args, class Take>
KTX_INLINE void score_heads(const Args& a, float scale, int64_t first, int64_t count,
                            const Take& take) {
  using D = FloatDots<V>;
  AttentionArgs args;
  args.q = a.q;
  args.q_stride = a.q_stride;
  args.attrs = index_attention(a.attrs);
  args.kv = a.kv;
  args.scratch = a.scratch;
  const Scratch<D> scratch(args);
  const int64_t heads = a.attrs.heads;
  const Span<D> span =
      load_index_keys<D>({args, scratch, 0, a.token_begin, a.token_end, 0, 1}, first, count);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t head = 0; head < heads; head += kTileRows) {
      const int64_t end = head + kTileRows < heads ? head + kTileRows : heads;
      const Tile<D> tile{args, scratch, 0, t, t + 1, head, end};
      Row<D> rows[kTileRows];
      make_rows<D>(tile, rows, [](int64_t) { return static_cast<float*>(nullptr); });
      each_group<V>(0, tile.rows(), [&](int64_t r, auto size) KTX_ALWAYS_INLINE {
        constexpr int R = decltype(size)::value;
        alignas(64) Scores scores[R];
        score_rows<D, R>(span, scale, rows + r, 0, count, scores);
        for (int i = 0; i < R; ++i) take(t, head + r + i, scores[i]);
      });
    }
  }
}

template <class V>
void position_scores(const PositionScoresArgs& a) {
  for (int64_t i = 0; i < (a.token_end - a.token_begin) * kSpan; i += 16) {
    V::store(a.scores + i, V::zero());
  }
  const int64_t count = a.position_end - a.position_begin;
  score_heads<V>(a, a.attrs.scale, a.position_begin, count,
                 [&](int64_t t, int64_t head, const float* scores) KTX_ALWAYS_INLINE {
                   const float weight =
                       a.weights != nullptr ? a.weights[t * a.weights_stride + head] : 1.0f;
                   add_weighted<V>(a.scores + (t - a.token_begin) * kSpan, scores, count, weight);
                 });
}

template <class V>
KTX_INLINE float largest_of(const float* scores, int64_t count) {
  typename V::F most = V::set1(-__builtin_inff());
  int64_t j = 0;
  for (; j + 16 <= count; j += 16) most = V::max(most, V::load(scores + j));
  float largest = V::max_of(most);
  for (; j < count; ++j) largest = scores[j] > largest ? scores[j] : largest;
  return largest;
}

template <class V>
void block_scores(const BlockScoresArgs& a) {
  const int64_t block = a.attrs.block, blocks = a.block_end - a.block_begin;
  score_heads<V>(a, 1, a.block_begin * block, blocks * block,
                 [&](int64_t t, int64_t head, const float* scores) KTX_ALWAYS_INLINE {
                   float* out = block_score(a, t, head, a.block_begin);
                   for (int64_t b = 0; b < blocks; ++b) {
                     out[b] = largest_of<V>(scores + b * block, block);
                   }
                 });
}

}  // namespace
}  // namespace ktx::kernels
