// Several residual streams: hyper-connections, attention over earlier layers, alternating updates.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/reference/arithmetic.h"

namespace ktx::reference {

using ir::Role;

std::vector<double> Interpreter::stream_weights(const ir::Module& streams,
                                                std::span<const float> x) const {
  const auto& info = std::get<ir::StreamsInfo>(streams.info);
  const auto n = static_cast<size_t>(info.streams);
  const Vector mixes = multiply(weights(streams, "fn"), norm(need(streams, Role::StreamsNorm), x));
  const auto scale = weights(streams, "scale"), base = weights(streams, "base");
  std::vector<double> w(mixes.begin(), mixes.end());
  for (size_t i = 0; i < w.size(); ++i) w[i] = w[i] * scale[std::min<size_t>(i / n, 2)] + base[i];
  for (size_t i = 0; i < n; ++i) w[i] = 1 / (1 + std::exp(-w[i])) + info.eps;
  if (info.iterations == 0) return w;
  for (size_t i = n; i < 2 * n; ++i) w[i] = 2 / (1 + std::exp(-w[i]));
  double* const comb = &w[2 * n];
  for (size_t row = 0; row < n; ++row) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += comb[row * n + i] = std::exp(comb[row * n + i]);
    for (size_t i = 0; i < n; ++i) comb[row * n + i] = comb[row * n + i] / sum + info.eps;
  }
  for (int32_t turn = 1; turn < 2 * info.iterations; ++turn) {  // columns first and last
    const size_t step = turn % 2 == 1 ? n : 1, next = turn % 2 == 1 ? 1 : n;
    for (size_t line = 0; line < n; ++line) {
      double sum = info.eps;
      for (size_t i = 0; i < n; ++i) sum += comb[line * next + i * step];
      for (size_t i = 0; i < n; ++i) comb[line * next + i * step] /= sum;
    }
  }
  return w;
}

Interpreter::Vector Interpreter::collapse(const ir::Module& streams,
                                          std::span<const float> x) const {
  const auto& info = std::get<ir::StreamsInfo>(streams.info);
  if (info.rank > 0) return gated_mean(streams, x);
  const auto n = static_cast<size_t>(info.streams);
  const std::vector<double> w =
      info.mean ? std::vector<double>(n, 1 / static_cast<double>(n)) : stream_weights(streams, x);
  Vector out(x.size() / n);
  for (size_t h = 0; h < out.size(); ++h) {
    double sum = 0;
    for (size_t s = 0; s < n; ++s) sum += w[s] * x[s * out.size() + h];
    out[h] = static_cast<float>(sum);
  }
  return out;
}

Interpreter::Vector Interpreter::mix(const ir::Module& streams, std::span<const float> x,
                                     std::span<const float> part) const {
  if (std::get<ir::StreamsInfo>(streams.info).rank > 0) return give(streams, x, part);
  const std::vector<double> w = stream_weights(streams, x);
  const auto n = static_cast<size_t>(std::get<ir::StreamsInfo>(streams.info).streams);
  Vector out(x.size());
  for (size_t d = 0; d < n; ++d) {
    for (size_t h = 0; h < part.size(); ++h) {
      double sum = w[n + d] * part[h];
      for (size_t s = 0; s < n; ++s) sum += w[(2 + s) * n + d] * x[s * part.size() + h];
      out[d * part.size() + h] = static_cast<float>(sum);
    }
  }
  return out;
}

Interpreter::Vector Interpreter::attend_streams(const ir::Module& sources,
                                                const std::vector<Vector>& all) const {
  const auto score = weights(sources, "score");
  const float eps = std::get<ir::SourcesInfo>(sources.info).eps;
  std::vector<double> shares;
  double sum = 0;
  for (const Vector& x : all) {
    const auto n = static_cast<double>(x.size());
    const double size = std::sqrt(dot(x.data(), x.data(), x.size()) / n + eps);
    shares.push_back(std::exp(dot(x.data(), score.data(), x.size()) / size));
    sum += shares.back();
  }
  Vector out(all[0].size());
  for (size_t s = 0; s < all.size(); ++s) {
    add_to(out, all[s], static_cast<float>(shares[s] / sum));
  }
  return out;
}

// As in SourcesInfo.
Interpreter::Vector Interpreter::attending_layer(const ir::Module& layer, Vector x) {
  const auto read = [&](Role role) {
    std::vector<Vector> all = earlier_;
    all.push_back(x);
    return attend_streams(need(layer, role), all);
  };
  const Vector in = norm(need(layer, Role::AttentionNorm), read(Role::AttentionSources));
  const int32_t block = std::get<ir::SourcesInfo>(need(layer, Role::AttentionSources).info).block;
  if (layer.layer % block == 0) earlier_.push_back(std::exchange(x, Vector(x.size())));
  const ir::Module* net = graph_.child(layer, Role::DeltaNet);
  add_to(x, net != nullptr ? delta_net(*net, in) : latent_attention(need(layer, Role::Mla), in));
  add_to(x, feed_forward(layer, read(Role::MlpSources)));
  return x;
}

Interpreter::Vector Interpreter::altup_kinds(const ir::Module& altup,
                                             std::span<const float> active) const {
  Vector kinds =
      linear(need(altup, Role::AltUpRouter), norm(need(altup, Role::AltUpRouterNorm), active));
  for (float& kind : kinds) kind = static_cast<float>(std::tanh(double{kind}));
  return kinds;
}

Interpreter::Vector Interpreter::predict(const ir::Module& altup, std::span<const float> x) const {
  const auto& info = std::get<ir::AltUpInfo>(altup.info);
  const auto n = static_cast<size_t>(info.streams), hidden = static_cast<size_t>(info.hidden);
  const Vector coefs = linear(need(altup, Role::AltUpPredictProj),
                              altup_kinds(altup, x.subspan(info.active * hidden, hidden)));
  Vector out(x.begin(), x.end());
  for (size_t d = 0; d < n; ++d) {
    for (size_t s = 0; s < n; ++s) {
      add_to(std::span(out).subspan(d * hidden, hidden), x.subspan(s * hidden, hidden),
             coefs[d * n + s]);
    }
  }
  return out;
}

Interpreter::Vector Interpreter::correct(const ir::Module& altup, std::span<const float> x,
                                         std::span<const float> active) const {
  const auto& info = std::get<ir::AltUpInfo>(altup.info);
  const auto hidden = static_cast<size_t>(info.hidden);
  const Vector coefs = linear(need(altup, Role::AltUpCorrectProj), altup_kinds(altup, active));
  Vector change(active.begin(), active.end());
  add_to(change, x.subspan(info.active * hidden, hidden), -1);
  Vector out(x.begin(), x.end());
  for (size_t d = 0; d < coefs.size(); ++d) {
    add_to(std::span(out).subspan(d * hidden, hidden), change, 1 + coefs[d]);
  }
  return out;
}

Interpreter::Vector Interpreter::project_streams(const ir::Module& projections,
                                                 std::span<const float> one) const {
  Vector out(one.begin(), one.end());
  const Vector others = multiply(weights(projections, "streams"), one);
  out.insert(out.end(), others.begin(), others.end());
  for (size_t at = one.size(); at < out.size(); at += one.size()) {
    match_size(std::span(out).subspan(at, one.size()), one);
  }
  return out;
}

Interpreter::Vector Interpreter::join_streams(const ir::Module& projections,
                                              std::span<const float> x) const {
  const auto hidden = static_cast<size_t>(graph_.facts.hidden), n = x.size() / hidden;
  const auto all = weights(projections, "streams");
  Vector mean(hidden);
  for (size_t i = 0; i < n; ++i) {
    const auto stream = x.subspan(i * hidden, hidden);
    Vector own(stream.begin(), stream.end());
    if (i > 0) {
      own = multiply(all.subspan((i - 1) * hidden * hidden, hidden * hidden), stream);
      match_size(own, x.first(hidden));
    }
    add_to(mean, own, 1 / static_cast<float>(n));
  }
  return mean;
}

Interpreter::Vector Interpreter::altup_layer(const ir::Module& layer, std::span<const float> inputs,
                                             std::span<const float> x) {
  const ir::Module& altup = need(layer, Role::AltUp);
  const ir::Module& laurel = need(layer, Role::Laurel);
  const auto& info = std::get<ir::AltUpInfo>(altup.info);
  const auto hidden = static_cast<size_t>(info.hidden);
  const Vector predicted = predict(altup, x);
  const auto active = std::span(predicted).subspan(info.active * hidden, hidden);
  const Vector in = norm(need(layer, Role::AttentionNorm), active);
  Vector own(active.begin(), active.end());
  add_to(own,
         norm(need(layer, Role::AttentionPostNorm), attention(need(layer, Role::Attention), in)));
  add_to(own, in);
  add_to(own, norm(need(laurel, Role::LaurelNorm),
                   linear(need(laurel, Role::LaurelUpProj),
                          linear(need(laurel, Role::LaurelDownProj), in))));
  for (float& value : own) value = static_cast<float>(value / std::numbers::sqrt2);
  add_to(own, norm(need(layer, Role::MlpPostNorm), feed_forward(layer, own)));
  Vector out = correct(altup, predicted, own);
  Vector scaled(out.begin() + info.active * info.hidden,
                out.begin() + (info.active + 1) * info.hidden);
  const auto scale = weights(altup, "output_scale");
  for (size_t i = 0; i < hidden; ++i) scaled[i] *= scale[i];
  const Vector given = layer_input(layer, inputs, scaled);
  for (size_t at = hidden; at < out.size(); at += hidden) {
    add_to(std::span(out).subspan(at, hidden), given);
  }
  return out;
}

}  // namespace ktx::reference
