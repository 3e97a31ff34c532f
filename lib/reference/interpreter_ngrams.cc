// The parts of Qwen4-Exp: gates of residual streams, pools of positions that an indexer chooses for
// all heads, and tables of n-grams.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"

namespace ktx::reference {

using ir::Role;

namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

Interpreter::Vector Interpreter::gated_mean(const ir::Module& streams,
                                            std::span<const float> x) const {
  const auto& info = std::get<ir::StreamsInfo>(streams.info);
  const Vector normed = norm(need(streams, Role::StreamsNorm), x);
  Vector low = linear(need(streams, Role::StreamsDownProj), normed);
  for (float& value : low) {
    const double part = double{value} / info.streams;
    value = static_cast<float>(part * sigmoid(part));
  }
  const Vector gates = linear(need(streams, Role::StreamsUpProj), low);
  Vector out(static_cast<size_t>(info.hidden));
  for (size_t h = 0; h < out.size(); ++h) {
    double sum = 0;
    for (size_t at = h; at < x.size(); at += out.size()) sum += sigmoid(gates[at]) * normed[at];
    out[h] = static_cast<float>(sum / info.streams);
  }
  return out;
}

Interpreter::Vector Interpreter::give(const ir::Module& streams, std::span<const float> x,
                                      std::span<const float> part) const {
  const auto& info = std::get<ir::StreamsInfo>(streams.info);
  const Vector shares =
      linear(need(streams, Role::StreamsGiveProj), norm(need(streams, Role::StreamsNorm), x));
  Vector out(x.begin(), x.end());
  for (size_t i = 0; i < out.size(); ++i) {
    const double share = 2 * sigmoid(double{shares[i / part.size()]} / info.streams);
    out[i] = static_cast<float>(out[i] + share * part[i % part.size()]);
  }
  return out;
}

// The same blocks for each KV head; the one that is not whole is the last.
std::vector<std::vector<size_t>> Interpreter::choose_pools(const ir::Module& attention,
                                                           std::span<const float> x) {
  const auto& info = std::get<ir::AttentionInfo>(attention.info);
  const ir::Module& indexer = need(attention, Role::Indexer);
  const auto& rotary = std::get<ir::RotaryInfo>(rotary_of(attention).info);
  const auto dim = static_cast<size_t>(info.index_dim);
  const auto block = static_cast<size_t>(info.index_block);
  const auto rotated = static_cast<size_t>(rotary.rotary_dim);
  Vector q = norm(need(indexer, Role::IndexQNorm), linear(need(indexer, Role::IndexQProj), x));
  for (size_t at = 0; at < q.size(); at += dim) {
    rotate(rotary, rotary.interleaved, std::span(q).subspan(at, rotated));
  }
  LayerCache& cache = caches_[attention.layer];
  std::vector<Vector>& rows = cache.index_entries.rows;
  rows.push_back(linear(need(indexer, Role::IndexKProj), x));
  if (rows.size() % block == 0) {
    const size_t first = rows.size() - block;
    Vector mean(dim);
    for (size_t c = 0; c < dim; ++c) {
      double sum = 0;
      for (size_t p = first; p < rows.size(); ++p) sum += rows[p][c];
      mean[c] = static_cast<float>(sum / static_cast<double>(block));
    }
    Vector key = norm(need(indexer, Role::IndexKNorm), mean);
    rotate_at(rotary, rotary.interleaved, static_cast<int64_t>(first),
              std::span(key).first(rotated));
    cache.index_keys.push_back(std::move(key));
  }
  std::vector<std::pair<double, size_t>> scores;
  for (size_t b = 0; b < cache.index_keys.size(); ++b) {
    double score = 0;
    for (size_t at = 0; at < q.size(); at += dim) {
      score += std::max(0.0, dot(&q[at], cache.index_keys[b].data(), dim));
    }
    scores.emplace_back(-score, b);
  }
  std::sort(scores.begin(), scores.end());
  scores.resize(std::min<size_t>(scores.size(), info.top_k));
  std::vector<size_t> list;
  for (const auto& [score, b] : scores) list.push_back(b);
  std::sort(list.begin(), list.end());
  if (rows.size() % block != 0) list.push_back(rows.size() / block);
  return std::vector(static_cast<size_t>(info.kv_heads), list);
}

// The table's rows for the last token, as EmbedNgramsAttrs has them.
Interpreter::Vector Interpreter::ngram_rows(const ir::Module& ngrams) const {
  const auto& info = std::get<ir::NgramsInfo>(ngrams.info);
  const ir::Module& table = need(ngrams, Role::NgramTable);
  std::vector<uint64_t> ids;  // of this token and of those before
  for (auto id = tokens_.rbegin(); std::ssize(ids) < info.size; ++id) {
    if (id == tokens_.rend() || (!ids.empty() && *id == info.end)) break;
    ids.push_back(static_cast<uint64_t>(*id));
  }
  ids.resize(static_cast<size_t>(info.size), static_cast<uint64_t>(info.end));
  Vector out;
  uint64_t mixed = ids[0] * info.multipliers[0];
  for (size_t n = 1; n < ids.size(); ++n) {
    mixed ^= ids[n] * info.multipliers[n];
    for (int32_t head = 0; head < info.heads; ++head) {
      const size_t i = (n - 1) * static_cast<size_t>(info.heads) + static_cast<size_t>(head);
      const uint64_t row = info.offsets[i] + mixed % info.sizes[i];
      const auto values = rows(table, "weight", static_cast<int64_t>(row), 1);
      out.insert(out.end(), values.begin(), values.end());
    }
  }
  return out;
}

// As NgramPartInfo has it.
void Interpreter::add_ngrams(const ir::Module& part, Vector& x) {
  const auto& info = std::get<ir::NgramPartInfo>(part.info);
  const auto hidden = static_cast<size_t>(info.hidden);
  const Vector found = ngram_rows(need(part, Role::Ngrams));
  const Vector keys =
      norm(need(part, Role::NgramKeyNorm), linear(need(part, Role::NgramKeyProj), found));
  const Vector value = linear(need(part, Role::NgramValueProj), found);
  const Vector queries = norm(need(part, Role::NgramQueryNorm), x);
  Vector gated(x.size());
  for (size_t at = 0; at < x.size(); at += hidden) {
    const double match =
        dot(&keys[at], &queries[at], hidden) / std::sqrt(static_cast<double>(hidden));
    const double root = std::sqrt(std::max(std::abs(match), double{kLeastRooted}));
    const double gate = sigmoid(match == 0 ? 0 : std::copysign(root, match));
    for (size_t h = 0; h < hidden; ++h) gated[at + h] = static_cast<float>(gate * value[h]);
  }
  std::vector<Vector>& inputs = caches_[part.layer].ngrams;
  inputs.push_back(norm(need(part, Role::NgramConvNorm), gated));
  const auto weight = weights(part, "conv");
  const auto taps = static_cast<size_t>(info.taps), step = static_cast<size_t>(info.dilation);
  for (size_t c = 0; c < x.size(); ++c) {
    double sum = 0;
    for (size_t back = 0; back < taps && back * step < inputs.size(); ++back) {
      sum +=
          double{weight[c * taps + taps - 1 - back]} * inputs[inputs.size() - 1 - back * step][c];
    }
    x[c] = static_cast<float>(x[c] + gated[c] + sum * sigmoid(sum));
  }
}

}  // namespace ktx::reference
