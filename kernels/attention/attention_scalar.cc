// Attention one output at a time, in double, with the softmax taken position by position.
#include <algorithm>
#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/block_scores.h"
#include "kernels/attention/kv_element.h"
#include "kernels/attention/kv_row.h"
#include "kernels/attention/position_scores.h"

namespace ktx::kernels {

void attention_scalar(const AttentionArgs& a);
void position_scores_scalar(const PositionScoresArgs& a);
void block_scores_scalar(const BlockScoresArgs& a);

namespace {

// The part of the cache that one head of a token reads.
struct Cache {
  const AttentionArgs& args;
  int64_t token;
  int64_t kv_head;

  int64_t place(int64_t j) const { return seen_position(args, token, kv_head, j); }
  const KvView& view(int64_t j) const { return is_entry(args, token, j) ? args.entries : args.kv; }
  KvType type(int64_t j) const { return view(j).layout.type; }
  const std::byte* key(int64_t position) const {
    return key_row(view(position), args.kv.sequence[token], kv_head, place(position));
  }
  const std::byte* value(int64_t position) const {
    return args.attrs.value_in_key
               ? key(position)
               : value_row(args.kv, args.kv.sequence[token], kv_head, place(position));
  }
};

void attend(const Cache& cache, int64_t head, const float* q, double* sum_of_values, float* y) {
  const AttentionAttrs& attrs = cache.args.attrs;
  const int64_t first = first_position(attrs, cache.args.kv.position[cache.token]);
  const int64_t last = last_seen(cache.args, cache.token);
  const int64_t own = cache.args.kv.position[cache.token];
  const double slope = attrs.alibi > 0 ? alibi_slope(attrs, head) : 0;
  double largest = -INFINITY, sum = 0;
  for (int64_t d = 0; d < attrs.value_dim; ++d) sum_of_values[d] = 0;
  for (int64_t p = first; p <= last; ++p) {
    double score = 0;
    for (int64_t d = 0; d < attrs.key_dim; ++d) {
      score += double{q[d]} * element(cache.type(p), cache.key(p), d);
    }
    score *= attrs.scale;
    if (attrs.softcap > 0) score = attrs.softcap * std::tanh(score / attrs.softcap);
    score -= slope * static_cast<double>(std::abs(own - p));
    if (score > largest) {
      const double shrink = std::exp(largest - score);
      sum *= shrink;
      for (int64_t d = 0; d < attrs.value_dim; ++d) sum_of_values[d] *= shrink;
      largest = score;
    }
    const double weight = std::exp(score - largest);
    sum += weight;
    for (int64_t d = 0; d < attrs.value_dim; ++d) {
      sum_of_values[d] += weight * element(cache.type(p), cache.value(p), d);
    }
  }
  double shrink = 1;
  if (cache.args.sinks != nullptr) {
    const double sink = cache.args.sinks[head];
    shrink = sink > largest ? std::exp(largest - sink) : 1;
    sum = sum * shrink + std::exp(sink - std::max(sink, largest));
  }
  for (int64_t d = 0; d < attrs.value_dim; ++d) {
    y[d] = static_cast<float>(sum_of_values[d] * shrink / sum);
  }
}

}  // namespace

int64_t attention_scratch_bytes(const AttentionAttrs& attrs) {
  const auto padded = [](int64_t dim) { return (dim + 31) / 32 * 32; };
  const int64_t key = padded(attrs.key_dim), value = padded(attrs.value_dim);
  // Keys and values of a span, for each row a total and a q vector, and 16 keys as they lie.
  // The scalar variant's row of doubles needs less.
  return ((kAttentionSpan + kAttentionRows) * (key + value) + 16 * key) * 4;
}

void attention_scalar(const AttentionArgs& a) {
  if (a.part == AttentionPart::OneSpan) return;  // Merge does it all
  const int64_t heads_per_kv = a.attrs.heads / a.attrs.kv_heads;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t h = a.head_begin; h < a.head_end; ++h) {
      attend({a, t, h / heads_per_kv}, h, a.q + t * a.q_stride + h * a.attrs.key_dim,
             reinterpret_cast<double*>(a.scratch), a.y + t * a.y_stride + h * a.attrs.value_dim);
    }
  }
}

void position_scores_scalar(const PositionScoresArgs& a) {
  const int64_t dim = a.attrs.key_dim;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    float* scores = a.scores + (t - a.token_begin) * kAttentionSpan;
    for (int64_t p = a.position_begin; p < a.position_end; ++p) {
      const std::byte* key = key_row(a.kv, a.kv.sequence[t], 0, p);
      double total = 0;
      for (int64_t h = 0; h < a.attrs.heads; ++h) {
        const float* q = a.q + t * a.q_stride + h * dim;
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) score += double{q[d]} * element(a.kv.layout.type, key, d);
        const double weight = a.weights != nullptr ? a.weights[t * a.weights_stride + h] : 1.0;
        total += std::max(0.0, score * a.attrs.scale) * weight;
      }
      scores[p - a.position_begin] = static_cast<float>(total);
    }
  }
}

void block_scores_scalar(const BlockScoresArgs& a) {
  const int64_t dim = a.attrs.key_dim, block = a.attrs.block;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t h = 0; h < a.attrs.heads; ++h) {
      const float* q = a.q + t * a.q_stride + h * dim;
      for (int64_t b = a.block_begin; b < a.block_end; ++b) {
        double best = -INFINITY;
        for (int64_t p = b * block; p < (b + 1) * block; ++p) {
          const std::byte* key = key_row(a.kv, a.kv.sequence[t], 0, p);
          double score = 0;
          for (int64_t d = 0; d < dim; ++d) {
            score += double{q[d]} * element(a.kv.layout.type, key, d);
          }
          best = std::max(best, score);
        }
        *block_score(a, t, h, b) = static_cast<float>(best);
      }
    }
  }
}

}  // namespace ktx::kernels
