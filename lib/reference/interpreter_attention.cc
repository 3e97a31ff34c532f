// Attention: heads with keys and values of their own or shared ones, windows, blocks chosen by an
// index.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"

namespace ktx::reference {

using ir::Role;

void Interpreter::grow(const PositionScaleAttrs& attrs, std::span<float> q, int64_t more) const {
  const auto contexts = static_cast<double>((position_ + more) / attrs.context);
  const double factor = 1 + attrs.growth * std::log(1 + contexts);
  for (float& value : q) value = static_cast<float>(value * factor);
}

void Interpreter::rotate(const ir::Module& rotary, std::span<float> x) const {
  const auto& info = std::get<ir::RotaryInfo>(rotary.info);
  rotate(info, info.interleaved, x);
}

void Interpreter::rotate(const ir::RotaryInfo& info, bool interleaved, std::span<float> x) const {
  rotate_at(info, interleaved, position_, x);
}

void Interpreter::rotate_at(const ir::RotaryInfo& info, bool interleaved, int64_t position,
                            std::span<float> x) const {
  const size_t half = info.inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * info.inv_freq[i];
    const double c = std::cos(static_cast<double>(angle)) * info.mscale;
    const double s = std::sin(static_cast<double>(angle)) * info.mscale;
    float& a = interleaved ? x[2 * i] : x[i];
    float& b = interleaved ? x[2 * i + 1] : x[i + half];
    const double turned_a = a * c - b * s;
    const double turned_b = b * c + a * s;
    a = static_cast<float>(turned_a);
    b = static_cast<float>(turned_b);
  }
}

// Per layer, or once for the model.
const ir::Module& Interpreter::rotary_of(const ir::Module& attention) const {
  if (const ir::Module* own = graph_.child(attention, Role::Rotary)) return *own;
  const ir::Module& model = need(graph_.root(), Role::Model);
  const auto* info = std::get_if<ir::AttentionInfo>(&attention.info);
  if (const ir::Module* local = graph_.child(model, Role::LocalRotary);
      local != nullptr && info != nullptr && info->window > 0) {
    return *local;
  }
  return need(model, Role::Rotary);
}

Interpreter::Vector Interpreter::attend(const LayerCache& cache, std::span<const float> q,
                                        const AttentionAttrs& a,
                                        std::span<const float> sinks) const {
  Vector out(static_cast<size_t>(a.heads) * a.value_dim);
  std::vector<double> score(cache.keys.size());
  const auto first = static_cast<size_t>(first_position(a, position_));
  for (int32_t head = 0; head < a.heads; ++head) {
    const int32_t kv = head / (a.heads / a.kv_heads);
    double top = sinks.empty() ? -INFINITY : sinks[head];
    for (size_t t = first; t < score.size(); ++t) {
      score[t] = a.scale * dot(&q[head * a.key_dim], &cache.keys[t][kv * a.key_dim], a.key_dim);
      if (a.softcap > 0) score[t] = a.softcap * std::tanh(score[t] / a.softcap);
      if (a.alibi > 0) {
        score[t] -= double{alibi_slope(a, head)} * static_cast<double>(cache.keys.size() - 1 - t);
      }
      top = std::max(top, score[t]);
    }
    double sum = sinks.empty() ? 0 : std::exp(sinks[head] - top);
    for (size_t t = first; t < score.size(); ++t) sum += score[t] = std::exp(score[t] - top);
    for (int32_t i = 0; i < a.value_dim; ++i) {
      double value = 0;
      for (size_t t = first; t < score.size(); ++t)
        value += score[t] * cache.values[t][kv * a.value_dim + i];
      out[head * a.value_dim + i] = static_cast<float>(value / sum);
    }
  }
  return out;
}

void Interpreter::store_keys(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::AttentionInfo>(module.info);
  const size_t q_width = static_cast<size_t>(info.heads) * info.head_dim;
  const size_t kv_width = static_cast<size_t>(info.kv_heads) * info.head_dim;
  const size_t v_width = static_cast<size_t>(info.kv_heads) * info.value_width();
  Vector k = part_linear(module, Role::KProj, Role::QkvProj, q_width, kv_width, x);
  Vector v = info.keys_as_values
                 ? k
                 : part_linear(module, Role::VProj, Role::QkvProj, q_width + kv_width, v_width, x);
  k = optional_norm(module, Role::KNorm, std::move(k));
  v = optional_norm(module, Role::VNorm, std::move(v));
  clamp(info.qkv_limit, k), clamp(info.qkv_limit, v);
  for (size_t at = 0; info.rotated && at < k.size(); at += info.head_dim) {
    rotate(rotary_of(module), std::span(k).subspan(at, info.head_dim));
  }
  LayerCache& cache = caches_[module.layer];
  cache.keys.push_back(optional_norm(module, Role::KRotatedNorm, std::move(k)));
  cache.values.push_back(std::move(v));
}

Interpreter::Vector Interpreter::attention(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::AttentionInfo>(module.info);
  const size_t q_width = static_cast<size_t>(info.heads) * info.head_dim;
  Vector q, gate;
  if (info.gated) {  // of each head the query, then the gate
    const Vector both = linear(need(module, Role::QProj), x);
    for (size_t at = 0; at < both.size(); ++at) {
      (at / info.head_dim % 2 == 0 ? q : gate).push_back(both[at]);
    }
  } else {
    q = part_linear(module, Role::QProj, Role::QkvProj, 0, q_width, x);
  }
  if (const ir::Module* own = graph_.child(module, Role::AttentionGateProj)) gate = linear(*own, x);
  q = optional_norm(module, Role::QNorm, std::move(q));
  clamp(info.qkv_limit, q);
  for (size_t at = 0; info.rotated && at < q.size(); at += info.head_dim) {
    rotate(rotary_of(module), std::span(q).subspan(at, info.head_dim));
  }
  q = optional_norm(module, Role::QRotatedNorm, std::move(q));
  grow(info.grown, q, info.grown_by_count ? 1 : 0);
  if (info.keys_of_layer < 0) store_keys(module, x);
  const LayerCache& cache = caches_[info.keys_of_layer < 0 ? module.layer : info.keys_of_layer];
  const AttentionAttrs attrs{
      0,          info.heads,  info.kv_heads, info.head_dim, info.value_width(), 0,
      info.scale, info.window, info.chunked,  info.softcap,  info.alibi};
  Vector out = info.top_k > 0 ? attend_blocks(module, x, q, attrs)
                              : attend(cache, q, attrs, weights(module, "sinks"));
  const bool softplus = info.gate == static_cast<int32_t>(HeadGate::Softplus);
  for (size_t i = 0; i < out.size() && !gate.empty(); ++i) {
    const float g = gate[i / (out.size() / gate.size())];
    out[i] *= softplus ? std::log1p(std::exp(g)) : 1 / (1 + std::exp(-g));
  }
  return linear(need(module, Role::OProj), optional_norm(module, Role::AttentionInnerNorm, out));
}

// The blocks that each KV head reads, rising, as ChooseBlocksAttrs says it.
std::vector<std::vector<size_t>> Interpreter::choose_blocks(const ir::Module& attention,
                                                            std::span<const float> x) {
  const auto& info = std::get<ir::AttentionInfo>(attention.info);
  if (info.index_heads > 0) return choose_pools(attention, x);
  const ir::Module& indexer = need(attention, Role::Indexer);
  const auto dim = static_cast<size_t>(info.index_dim),
             block = static_cast<size_t>(info.index_block);
  Vector q = norm(need(indexer, Role::IndexQNorm), linear(need(indexer, Role::IndexQProj), x));
  Vector key = norm(need(indexer, Role::IndexKNorm), linear(need(indexer, Role::IndexKProj), x));
  for (size_t at = 0; at < q.size(); at += dim) {
    rotate(rotary_of(attention), std::span(q).subspan(at, dim));
  }
  rotate(rotary_of(attention), key);
  std::vector<Vector>& keys = caches_[attention.layer].index_keys;
  keys.push_back(std::move(key));
  const size_t blocks = (keys.size() + block - 1) / block;
  std::vector<std::vector<size_t>> chosen;
  for (int32_t head = 0; head < info.kv_heads; ++head) {
    std::vector<std::pair<double, size_t>> scores;
    for (size_t b = 0; b < blocks; ++b) {
      double best = -INFINITY;
      for (size_t t = b * block; t < std::min((b + 1) * block, keys.size()); ++t) {
        best = std::max(best, dot(&q[head * dim], keys[t].data(), dim));
      }
      const bool local = b + static_cast<size_t>(info.index_local) >= blocks;
      scores.emplace_back(local ? -INFINITY : -best, b);
    }
    std::sort(scores.begin(), scores.end());
    scores.resize(std::min<size_t>(scores.size(), info.top_k));
    std::vector<size_t>& list = chosen.emplace_back();
    for (const auto& [score, b] : scores) list.push_back(b);
    std::sort(list.begin(), list.end());
  }
  return chosen;
}

// Each KV head with its q heads by itself, over the positions of its blocks.
Interpreter::Vector Interpreter::attend_blocks(const ir::Module& attention,
                                               std::span<const float> x, std::span<const float> q,
                                               AttentionAttrs attrs) {
  const auto& info = std::get<ir::AttentionInfo>(attention.info);
  const LayerCache& cache = caches_[attention.layer];
  const size_t group = attrs.heads / attrs.kv_heads * attrs.key_dim;
  attrs.heads /= attrs.kv_heads, attrs.kv_heads = 1;
  const auto block = static_cast<size_t>(info.index_block);
  Vector out;
  size_t head = 0;
  for (const std::vector<size_t>& list : choose_blocks(attention, x)) {
    LayerCache some;
    const auto part = [&](const Vector& row) {
      const auto from = row.begin() + static_cast<std::ptrdiff_t>(head * attrs.key_dim);
      return Vector(from, from + attrs.key_dim);
    };
    for (const size_t b : list) {
      for (size_t t = b * block; t < std::min((b + 1) * block, cache.keys.size()); ++t) {
        some.keys.push_back(part(cache.keys[t]));
        some.values.push_back(part(cache.values[t]));
      }
    }
    const Vector of_head = attend(some, q.subspan(head * group, group), attrs, {});
    out.insert(out.end(), of_head.begin(), of_head.end());
    ++head;
  }
  return out;
}

}  // namespace ktx::reference
