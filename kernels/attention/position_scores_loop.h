// Scores of positions over the spans of attention_span.h: the keys of a span stand transposed in
// scratch once for all tokens, and each group of heads adds to a token's scores what it has of
// them. Included by attention_<isa>.cc only.
#pragma once

#include "kernels/attention/attention_loop.h"
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
  const KvType type = tile.args.kv.layout.type;
  if (type == KvType::F32) load_keys<D, KvType::F32>(tile, first, 0, count);
  if (type == KvType::F16) load_keys<D, KvType::F16>(tile, first, 0, count);
  if (type == KvType::Q8_0) load_keys<D, KvType::Q8_0>(tile, first, 0, count);
  const Scratch<D>& s = tile.scratch;
  return {s.keys, s.values, tile.args.attrs.key_dim, s.key_pad, s.value_pad};
}

template <class V>
void position_scores(const PositionScoresArgs& a) {
  using D = FloatDots<V>;
  AttentionArgs args;
  args.q = a.q;
  args.q_stride = a.q_stride;
  args.attrs = index_attention(a.attrs);
  args.kv = a.kv;
  args.scratch = a.scratch;
  const Scratch<D> scratch(args);
  const int64_t count = a.position_end - a.position_begin, heads = a.attrs.heads;
  const Span<D> span = load_index_keys<D>({args, scratch, 0, a.token_begin, a.token_end, 0, 1},
                                          a.position_begin, count);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    float* total = a.scores + (t - a.token_begin) * kSpan;
    for (int64_t j = 0; j < kSpan; j += 16) V::store(total + j, V::zero());
    for (int64_t head = 0; head < heads; head += kTileRows) {
      const int64_t end = head + kTileRows < heads ? head + kTileRows : heads;
      const Tile<D> tile{args, scratch, 0, t, t + 1, head, end};
      Row<D> rows[kTileRows];
      make_rows<D>(tile, rows, [](int64_t) { return static_cast<float*>(nullptr); });
      each_group<V>(0, tile.rows(), [&](int64_t r, auto size) KTX_ALWAYS_INLINE {
        constexpr int R = decltype(size)::value;
        alignas(64) Scores scores[R];
        score_rows<D, R>(span, a.attrs.scale, rows + r, 0, count, scores);
        for (int i = 0; i < R; ++i) {
          const float weight = a.weights[t * a.weights_stride + head + r + i];
          add_weighted<V>(total, scores[i], count, weight);
        }
      });
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
