// Compressed attention: a window of positions beside entries, each of which stands for several.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"

namespace ktx::reference {

using ir::Role;

// The entry that the last position ends: softmax(scores) * rows of its positions, channel by
// channel, and where entries overlap of those of the entry before (CompressAttrs).
std::optional<Interpreter::Vector> Interpreter::make_entry(
    const ir::Module& compressor, const LayerCache::Entries& entries) const {
  const auto& info = std::get<ir::CompressorInfo>(compressor.info);
  const auto every = static_cast<size_t>(info.every), dim = static_cast<size_t>(info.dim);
  const size_t channels = entries.rows[0].size(), seen = entries.rows.size();
  if (seen % every != 0) return std::nullopt;
  const auto bias = weights(compressor, "position_bias");
  Vector entry(dim);
  for (size_t c = 0; c < dim; ++c) {
    std::vector<std::pair<double, double>> parts;  // score and row
    const auto take = [&](size_t position, size_t channel) {
      parts.emplace_back(
          double{entries.scores[position][channel]} + bias[position % every * channels + channel],
          entries.rows[position][channel]);
    };
    for (size_t p = info.overlapped && seen > every ? seen - 2 * every : seen - every;
         p < seen - every; ++p) {
      take(p, c);
    }
    for (size_t p = seen - every; p < seen; ++p) take(p, info.overlapped ? dim + c : c);
    double top = -INFINITY, sum = 0, value = 0;
    for (const auto& [score, row] : parts) top = std::max(top, score);
    for (const auto& [score, row] : parts) {
      sum += std::exp(score - top);
      value += std::exp(score - top) * row;
    }
    entry[c] = static_cast<float>(value / sum);
  }
  return entry;
}

// The entries so far.
const std::vector<Interpreter::Vector>& Interpreter::compress(const ir::Module& compressor,
                                                              std::span<const float> x,
                                                              LayerCache::Entries& entries) const {
  entries.rows.push_back(linear(need(compressor, Role::CompressorKvProj), x));
  entries.scores.push_back(linear(need(compressor, Role::CompressorGateProj), x));
  std::optional<Vector> made = make_entry(compressor, entries);
  if (!made) return entries.made;
  Vector entry = norm(need(compressor, Role::CompressorNorm), *made);
  const auto every = static_cast<size_t>(std::get<ir::CompressorInfo>(compressor.info).every);
  const auto& rotary = std::get<ir::RotaryInfo>(need(compressor, Role::Rotary).info);
  rotate_at(rotary, rotary.interleaved, static_cast<int64_t>(entries.rows.size() - every),
            std::span(entry).last(static_cast<size_t>(rotary.rotary_dim)));
  entries.made.push_back(std::move(entry));
  return entries.made;
}

// The best entries by ChoosePositionsAttrs' score, rising.
std::vector<size_t> Interpreter::choose_entries(const ir::Module& attention,
                                                const ir::Module& indexer, std::span<const float> x,
                                                std::span<const float> q_latent) {
  const auto& info = std::get<ir::CompressedAttentionInfo>(attention.info);
  const auto dim = static_cast<size_t>(info.index_dim);
  const std::vector<Vector>& keys = compress(indexer, x, caches_[attention.layer].index_entries);
  Vector q = linear(need(indexer, Role::IndexQProj), q_latent);
  for (size_t at = 0; at < q.size(); at += dim) {
    rotate(need(indexer, Role::Rotary),
           std::span(q).subspan(at, dim).last(static_cast<size_t>(info.rope_dim)));
  }
  const Vector head_weights =
      linear(need(need(indexer, Role::IndexScorer), Role::IndexWeightsProj), x);
  std::vector<std::pair<double, size_t>> scores;
  for (size_t e = 0; e < keys.size(); ++e) {
    double score = 0;
    for (int32_t head = 0; head < info.index_heads; ++head) {
      score += head_weights[head] * std::max(0.0, dot(&q[head * dim], keys[e].data(), dim));
    }
    scores.emplace_back(-score, e);  // all scores have the same factor
  }
  std::sort(scores.begin(), scores.end());
  scores.resize(std::min<size_t>(scores.size(), info.top_k));
  std::vector<size_t> chosen;
  for (const auto& [score, e] : scores) chosen.push_back(e);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

Interpreter::Vector Interpreter::compressed_attention(const ir::Module& module,
                                                      std::span<const float> x) {
  const auto& info = std::get<ir::CompressedAttentionInfo>(module.info);
  const ir::Module* compressor = graph_.child(module, Role::Compressor);
  const ir::Module& rotary =
      compressor != nullptr ? need(*compressor, Role::Rotary) : rotary_of(module);
  const auto dim = static_cast<size_t>(info.head_dim), rope = static_cast<size_t>(info.rope_dim);
  const auto ends = [&](Vector& heads, const auto& turn) {
    for (size_t at = 0; at < heads.size(); at += dim) {
      turn(std::span(heads).subspan(at, dim).last(rope));
    }
  };
  const auto turn = [&](std::span<float> part) { rotate(rotary, part); };
  const Vector q_latent = norm(need(module, Role::QANorm), linear(need(module, Role::QAProj), x));
  Vector q = norm(need(module, Role::QNorm), linear(need(module, Role::QBProj), q_latent));
  Vector key = norm(need(module, Role::KNorm), linear(need(module, Role::KProj), x));
  ends(q, turn);
  ends(key, turn);
  LayerCache& cache = caches_[module.layer];
  cache.keys.push_back(std::move(key));
  LayerCache seen;
  if (compressor != nullptr) {
    const std::vector<Vector>& made = compress(*compressor, x, cache.entries);
    if (const ir::Module* indexer = graph_.child(*compressor, Role::Indexer)) {
      for (size_t e : choose_entries(module, *indexer, x, q_latent)) seen.keys.push_back(made[e]);
    } else {
      seen.keys = made;
    }
  }
  const size_t all = cache.keys.size(), window = static_cast<size_t>(info.window);
  for (size_t t = all > window ? all - window : 0; t < all; ++t) {
    seen.keys.push_back(cache.keys[t]);
  }
  seen.values = seen.keys;
  const AttentionAttrs attrs{0, info.heads, 1, info.head_dim, info.head_dim, 1, info.scale};
  Vector out = attend(seen, q, attrs, weights(module, "sinks"));
  ir::RotaryInfo back = std::get<ir::RotaryInfo>(rotary.info);
  for (float& frequency : back.inv_freq) frequency = -frequency;
  ends(out, [&](std::span<float> part) { rotate(back, back.interleaved, part); });
  // A block of the matrix for each group of heads.
  const auto down = weights(need(module, Role::OAProj), "weight");
  Vector latents;
  const size_t part = out.size() / static_cast<size_t>(info.groups);
  for (int32_t g = 0; g < info.groups; ++g) {
    const Vector own = multiply(down.subspan(g * info.group_rank * part, info.group_rank * part),
                                std::span(out).subspan(g * part, part));
    latents.insert(latents.end(), own.begin(), own.end());
  }
  return linear(need(module, Role::OProj), latents);
}

}  // namespace ktx::reference
