// Latent attention: keys and values of all heads expand from one row; positions that an indexer
// chooses.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"

namespace ktx::reference {

using ir::Role;

// Keys (without their rotary part) and values of all heads out of the latent.
std::pair<Interpreter::Vector, Interpreter::Vector> Interpreter::expand_latent(
    const ir::Module& kv_b, const ir::MlaInfo& info, std::span<const float> latent) const {
  Vector keys(static_cast<size_t>(info.heads) * info.nope_dim);
  Vector values(static_cast<size_t>(info.heads) * info.value_dim);
  if (const auto whole = weights(kv_b, "weight"); !whole.empty()) {
    const Vector both = multiply(whole, latent);
    const int32_t width = info.nope_dim + info.value_dim;
    for (int32_t head = 0; head < info.heads; ++head) {
      const float* from = &both[head * width];
      std::copy_n(from, info.nope_dim, &keys[head * info.nope_dim]);
      std::copy_n(from + info.nope_dim, info.value_dim, &values[head * info.value_dim]);
    }
    return {keys, values};
  }
  // k_b is stored transposed: kv_lora_rank rows of nope_dim per head.
  const auto k_b = weights(kv_b, "k_b");
  for (int32_t head = 0; head < info.heads; ++head) {
    const float* matrix = &k_b[static_cast<size_t>(head) * info.kv_lora_rank * info.nope_dim];
    for (int32_t i = 0; i < info.nope_dim; ++i) {
      double sum = 0;
      for (int32_t l = 0; l < info.kv_lora_rank; ++l) {
        sum += static_cast<double>(matrix[l * info.nope_dim + i]) * latent[l];
      }
      keys[head * info.nope_dim + i] = static_cast<float>(sum);
    }
  }
  return {keys, multiply(weights(kv_b, "v_b"), latent)};
}

// The best positions by ChoosePositionsAttrs' score, rising, in the layer's cache.
void Interpreter::choose_positions(const ir::Module& attention, const ir::Module& indexer,
                                   std::span<const float> x, std::span<const float> q_latent) {
  const auto& info = std::get<ir::MlaInfo>(attention.info);
  const auto dim = static_cast<size_t>(info.index_dim);
  Vector q = linear(need(indexer, Role::IndexQProj), q_latent);
  Vector key = norm(need(indexer, Role::IndexKNorm), linear(need(indexer, Role::IndexKProj), x));
  if (info.rotated) {
    const auto& rotary = std::get<ir::RotaryInfo>(rotary_of(attention).info);
    for (size_t at = 0; at < q.size(); at += dim) {
      rotate(rotary, info.index_interleaved, std::span(q).subspan(at, info.rope_dim));
    }
    rotate(rotary, info.index_interleaved, std::span(key).first(info.rope_dim));
  }
  const Vector head_weights = linear(need(indexer, Role::IndexWeightsProj), x);
  LayerCache& cache = caches_[attention.layer];
  if (info.index_pool > 0) {
    LayerCache::Entries& pools = cache.index_entries;
    pools.rows.push_back(std::move(key));
    pools.scores.push_back(multiply(weights(indexer, "pool_gate"), x));
    if (std::optional<Vector> pool = make_entry(indexer, pools)) cache.index_keys.push_back(*pool);
  } else {
    cache.index_keys.push_back(std::move(key));
  }
  std::vector<std::pair<double, size_t>> scores;
  for (size_t t = 0; t < cache.index_keys.size(); ++t) {
    double score = 0;
    for (int32_t head = 0; head < info.index_heads; ++head) {
      const double match = dot(&q[head * dim], cache.index_keys[t].data(), dim);
      score += head_weights[head] * std::max(0.0, match);
    }
    scores.emplace_back(-score, t);  // all scores have the same factor
  }
  std::sort(scores.begin(), scores.end());
  scores.resize(std::min<size_t>(scores.size(), info.top_k));
  cache.chosen.clear();
  const auto each = static_cast<size_t>(std::max(info.index_pool, 1));
  for (const auto& [score, t] : scores) {
    for (size_t i = 0; i < each; ++i) cache.chosen.push_back(t * each + i);
  }
  const auto seen = static_cast<size_t>(position_) + 1;
  for (size_t t = seen / each * each; t < seen; ++t) cache.chosen.push_back(t);
  std::sort(cache.chosen.begin(), cache.chosen.end());
}

Interpreter::Vector Interpreter::latent_attention(const ir::Module& module,
                                                  std::span<const float> x) {
  const auto& info = std::get<ir::MlaInfo>(module.info);
  const auto turn = [&](std::span<float> part) {
    if (info.rotated) rotate(rotary_of(module), part);
  };
  const int32_t key_dim = info.nope_dim + info.rope_dim;
  Vector q, q_latent;
  if (const ir::Module* q_a = graph_.child(module, Role::QAProj)) {
    q_latent = norm(need(module, Role::QANorm), linear(*q_a, x));
    q = linear(need(module, Role::QBProj), q_latent);
  } else {
    q = linear(need(module, Role::QProj), x);
  }
  for (int32_t head = 0; head < info.heads; ++head) {
    turn(std::span(q).subspan(head * key_dim + info.nope_dim, info.rope_dim));
  }
  grow(info.grown, q);
  Vector joint = linear(need(module, Role::KvAProj), x);  // [latent | rotary key]
  const std::span<float> rope_key = std::span(joint).subspan(info.kv_lora_rank);
  turn(rope_key);
  const Vector latent =
      norm(need(module, Role::KvANorm), std::span(joint).first(info.kv_lora_rank));
  auto [nope_keys, values] = expand_latent(need(module, Role::KvBProj), info, latent);
  Vector keys;
  for (int32_t head = 0; head < info.heads; ++head) {
    const auto from = nope_keys.begin() + head * info.nope_dim;
    keys.insert(keys.end(), from, from + info.nope_dim);
    keys.insert(keys.end(), rope_key.begin(), rope_key.end());
  }
  LayerCache& cache = caches_[module.layer];
  cache.keys.push_back(std::move(keys));
  cache.values.push_back(std::move(values));
  const AttentionAttrs attrs{0, info.heads, info.heads, key_dim, info.value_dim, 0, info.scale};
  if (info.top_k == 0) {
    Vector out = attend(cache, q, attrs, {});
    if (const ir::Module* own = graph_.child(module, Role::AttentionGateProj)) {
      const Vector gate = linear(*own, x);  // of each head, or of each element
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] /= 1 + std::exp(-gate[i / (out.size() / gate.size())]);
      }
    }
    return linear(need(module, Role::OProj), out);
  }
  if (const ir::Module* indexer = graph_.child(module, Role::Indexer)) {
    choose_positions(module, *indexer, x, q_latent);
  }
  LayerCache chosen;
  for (size_t t :
       caches_[info.positions_of_layer < 0 ? module.layer : info.positions_of_layer].chosen) {
    chosen.keys.push_back(cache.keys[t]);
    chosen.values.push_back(cache.values[t]);
  }
  return linear(need(module, Role::OProj), attend(chosen, q, attrs, {}));
}

}  // namespace ktx::reference
