#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"
#include "lib/reference/parameters.h"

namespace ktx::reference {

using ir::Role;

Result<Interpreter> Interpreter::make(const ir::ModuleGraph& graph, const input::GgufFile& gguf,
                                      ThreadPool* pool) {
  Interpreter model(graph, gguf, pool);
  for (const ir::Module& module : graph.modules) {
    for (const ir::Param& param : module.params) KTX_TRY(check_sources(param, gguf));
  }
  model.caches_.resize(graph.facts.layers);
  return model;
}

void Interpreter::reset() {
  position_ = 0;
  tokens_.clear();
  caches_.assign(caches_.size(), {});
}

const ir::Module& Interpreter::need(const ir::Module& parent, Role role) const {
  const ir::Module* child = graph_.child(parent, role);
  KTX_ASSERT(child != nullptr);
  return *child;
}

std::span<const float> Interpreter::rows(const ir::Module& module, std::string_view name,
                                         int64_t first, int64_t count) const {
  const auto param = std::ranges::find(module.params, name, &ir::Param::name);
  if (param == module.params.end()) return {};
  if (count < 0) count = param->rows * param->matrices;
  Vector& kept = weights_[{&*param, first, count}];
  if (kept.empty()) {
    kept = dequantise(*param, gguf_, first, count);
    kept_floats_ += std::ssize(kept);
  }
  return kept;
}

std::span<const float> Interpreter::weights(const ir::Module& module,
                                            std::string_view param) const {
  return rows(module, param, 0, -1);
}

// Between two layers, where nothing looks at weights.
void Interpreter::forget_weights() const {
  if (kept_floats_ <= kMaxKeptFloats) return;
  weights_.clear();
  kept_floats_ = 0;
}

// y = W x, W row-major with x.size() columns.
Interpreter::Vector Interpreter::multiply(std::span<const float> w,
                                          std::span<const float> x) const {
  constexpr size_t kSharedElems = 1 << 16, kRowsOfItem = 16;
  Vector y(w.size() / x.size());
  const auto item = [&](int64_t i, int) {
    const auto begin = static_cast<size_t>(i) * kRowsOfItem;
    for (size_t row = begin; row < std::min(y.size(), begin + kRowsOfItem); ++row) {
      y[row] = static_cast<float>(dot(&w[row * x.size()], x.data(), x.size()));
    }
  };
  const auto items = static_cast<int64_t>((y.size() + kRowsOfItem - 1) / kRowsOfItem);
  if (pool_ != nullptr && w.size() >= kSharedElems) {
    pool_->for_each(items, item);
  } else {
    for (int64_t i = 0; i < items; ++i) item(i, 0);
  }
  return y;
}

Interpreter::Vector Interpreter::linear(const ir::Module& module, std::span<const float> x) const {
  Vector y = multiply(weights(module, "weight"), x);
  if (const auto* info = std::get_if<ir::LinearInfo>(&module.info)) {
    for (float& value : y) value *= info->factor;
  }
  const auto bias = weights(module, "bias");
  if (!bias.empty()) add_to(y, bias);
  return y;
}

// Where the parent has a fused linear, elements [first, first + count) of what it gives.
Interpreter::Vector Interpreter::part_linear(const ir::Module& parent, Role role, Role fused,
                                             size_t first, size_t count,
                                             std::span<const float> x) const {
  const ir::Module* whole = graph_.child(parent, fused);
  if (whole == nullptr) return linear(need(parent, role), x);
  if (const auto half = weights(*whole, role == Role::GateProj ? "gate" : "up"); !half.empty()) {
    return multiply(half, x);
  }
  const Vector all = linear(*whole, x);
  const auto begin = all.begin() + static_cast<int64_t>(first);
  return {begin, begin + static_cast<int64_t>(count)};
}

// Each group of the norm's width on its own: whole rows, or heads.
Interpreter::Vector Interpreter::norm(const ir::Module& module, std::span<const float> x) const {
  const auto& info = std::get<ir::NormInfo>(module.info);
  const auto weight = weights(module, "weight");
  Vector y(x.size());
  const auto bias = weights(module, "bias");
  const auto width = static_cast<double>(info.width);
  for (size_t at = 0; at < x.size(); at += info.width) {
    double middle = 0, squares = 0;
    for (int64_t i = 0; info.layer_norm && i < info.width; ++i) middle += x[at + i] / width;
    for (int64_t i = 0; i < info.width; ++i) squares += (x[at + i] - middle) * (x[at + i] - middle);
    const double factor = 1 / std::sqrt(squares / width + info.eps);
    for (int64_t i = 0; i < info.width; ++i) {
      const float own = weight.empty() ? 1 : weight[info.groups > 1 ? at + i : i];
      y[at + i] = static_cast<float>((x[at + i] - middle) * factor) * own * info.factor +
                  (bias.empty() ? 0 : bias[i]);
    }
  }
  return y;
}

Interpreter::Vector Interpreter::optional_norm(const ir::Module& parent, Role role,
                                               Vector x) const {
  const ir::Module* module = graph_.child(parent, role);
  return module != nullptr ? norm(*module, x) : x;
}

// Dense, with experts, or both side by side with norms of their own.
Interpreter::Vector Interpreter::feed_forward(const ir::Module& layer,
                                              std::span<const float> x) const {
  const Vector in = optional_norm(layer, Role::MlpNorm, Vector(x.begin(), x.end()));
  if (const ir::Module* moe_module = graph_.child(layer, Role::Moe)) return moe(*moe_module, in);
  Vector y = optional_norm(layer, Role::DensePostNorm, mlp(need(layer, Role::Mlp), in));
  if (const ir::Module* block = graph_.child(layer, Role::RouterBlock)) {
    const Vector given =
        routed(need(*block, Role::Router), need(layer, Role::Experts),
               norm(need(*block, Role::RouterNorm), x), norm(need(layer, Role::ExpertsNorm), x));
    add_to(y, norm(need(layer, Role::ExpertsPostNorm), given));
  }
  return y;
}

// The layers' parts of the token embedding, one behind the other; empty where there are none.
Interpreter::Vector Interpreter::layer_inputs(const ir::Module& model, int32_t token,
                                              std::span<const float> x) const {
  const ir::Module* embedding = graph_.child(model, Role::LayerEmbedding);
  if (embedding == nullptr) return {};
  const auto& info = std::get<ir::EmbeddingInfo>(embedding->info);
  Vector all =
      norm(need(model, Role::LayerInputsNorm), linear(need(model, Role::LayerInputsProj), x));
  add_to(all, rows(*embedding, "weight", token, 1), info.scale);
  return all;
}

// What the layer's own part of them adds to the stream.
Interpreter::Vector Interpreter::layer_input(const ir::Module& layer, std::span<const float> all,
                                             std::span<const float> x) const {
  const Vector gate = linear(need(layer, Role::LayerInputGate), x);
  const GluAttrs& attrs = std::get<ir::MlpInfo>(need(layer, Role::Mlp).info).glu;
  const Vector gated = glu(attrs, gate, all.subspan(layer.layer * gate.size(), gate.size()));
  return norm(need(layer, Role::LayerInputPostNorm),
              linear(need(layer, Role::LayerInputProj), gated));
}

std::vector<float> Interpreter::next(int32_t token, std::span<const float> given) {
  const ir::Module& model = need(graph_.root(), Role::Model);
  const auto row = rows(need(model, Role::Embedding), "weight", token, 1);
  Vector x(row.begin(), row.end());
  const float scale = std::get<ir::EmbeddingInfo>(need(model, Role::Embedding).info).scale;
  for (float& value : x) value *= scale;
  if (const ir::Module* positions = graph_.child(model, Role::PositionEmbedding)) {
    add_to(x, rows(*positions, "weight", static_cast<int64_t>(position_), 1));
  }
  x = optional_norm(model, Role::EmbeddingNorm, std::move(x));
  x = optional_norm(need(model, Role::Embedding), Role::EmbeddingNorm, std::move(x));
  const ir::Module& first = graph_.modules[need(model, Role::LayerList).children.front()];
  if (const ir::Module* projection = graph_.child(first, Role::PredictionProj)) {
    Vector both = norm(need(first, Role::PredictionEmbeddingNorm), x);
    const Vector state = norm(need(first, Role::PredictionHiddenNorm), given);
    both.insert(both.end(), state.begin(), state.end());
    x = linear(*projection, both);
  }
  const Vector inputs = layer_inputs(model, token, x);
  token_ = token;
  tokens_.push_back(token);
  const ir::Module* const head_streams = graph_.child(model, Role::HeadStreams);
  if (head_streams != nullptr) {
    const Vector one = x;
    const auto& info = std::get<ir::StreamsInfo>(head_streams->info);
    for (int32_t s = 1; s < info.streams; ++s) x.insert(x.end(), one.begin(), one.end());
  }
  const ir::Module* const projections = graph_.child(model, Role::AltUpEmbedProj);
  if (projections != nullptr) x = project_streams(*projections, x);
  const ir::Module* const head_sources = graph_.child(model, Role::HeadSources);
  earlier_.clear();
  streams_.clear();
  for (ir::ModuleId id : need(model, Role::LayerList).children) {
    const ir::Module& layer = graph_.modules[id];
    streams_.push_back(x);
    forget_weights();
    if (const ir::Module* streams = graph_.child(layer, Role::AttentionStreams)) {
      const ir::Module& behind = need(layer, Role::MlpStreams);
      if (const ir::Module* part = graph_.child(layer, Role::NgramPart)) add_ngrams(*part, x);
      const Vector in = optional_norm(layer, Role::AttentionNorm, collapse(*streams, x));
      const ir::Module* const mla = graph_.child(layer, Role::Mla);
      const ir::Module* const net = graph_.child(layer, Role::DeltaNet);
      const ir::Module* const full = graph_.child(layer, Role::Attention);
      const Vector given = mla != nullptr    ? latent_attention(*mla, in)
                           : full != nullptr ? attention(*full, in)
                           : net != nullptr
                               ? delta_net(*net, in)
                               : compressed_attention(need(layer, Role::CompressedAttention), in);
      x = mix(*streams, x, given);
      x = mix(behind, x, feed_forward(layer, collapse(behind, x)));
      continue;
    }
    if (projections != nullptr) {
      x = altup_layer(layer, inputs, x);
      continue;
    }
    if (head_sources != nullptr) {
      x = attending_layer(layer, std::move(x));
      continue;
    }
    const Vector a = optional_norm(layer, Role::AttentionNorm, x);
    const ir::Module* mla = graph_.child(layer, Role::Mla);
    const ir::Module* net = graph_.child(layer, Role::DeltaNet);
    const ir::Module* full = graph_.child(layer, Role::Attention);
    const ir::Module* space = graph_.child(layer, Role::StateSpace);
    Vector attended = mla != nullptr    ? latent_attention(*mla, a)
                      : net != nullptr  ? delta_net(*net, a)
                      : full != nullptr ? attention(*full, a)
                                        : Vector(a.size());
    if (space != nullptr) add_to(attended, state_space(*space, a), 1);
    if (const ir::Module* scan = graph_.child(layer, Role::SelectiveScan)) {
      add_to(attended, selective_scan(*scan, a), 1);
    }
    if (const ir::Module* conv = graph_.child(layer, Role::ShortConv)) {
      add_to(attended, short_conv(*conv, a), 1);
    }
    const float residual = graph_.facts.residual_scale;
    add_to(x, optional_norm(layer, Role::AttentionPostNorm, attended), residual);
    // Where one norm stands before both parts, the feed-forward part reads what attention does.
    const bool beside = graph_.child(layer, Role::MlpNorm) == nullptr &&
                        graph_.child(layer, Role::MlpPostNorm) == nullptr;
    const ir::Module* side = graph_.child(layer, Role::SideMlpNorm);
    if (graph_.child(layer, Role::Mlp) || graph_.child(layer, Role::Moe)) {
      const Vector in = side != nullptr ? norm(*side, streams_.back()) : beside ? a : x;
      add_to(x, optional_norm(layer, Role::MlpPostNorm, feed_forward(layer, in)), residual);
    }
    if (!inputs.empty()) add_to(x, layer_input(layer, inputs, x));
    const auto* info = std::get_if<ir::LayerInfo>(&layer.info);
    for (float& value : x) value *= info != nullptr ? info->output_scale : 1;
  }
  streams_.push_back(x);
  ++position_;
  const ir::Module* scores = graph_.child(graph_.root(), Role::ScoreHead);
  const ir::Module& head = scores != nullptr ? *scores : need(graph_.root(), Role::Head);
  if (head_streams != nullptr) x = collapse(*head_streams, x);
  if (head_sources != nullptr) {
    earlier_.push_back(x);
    x = attend_streams(*head_sources, earlier_);
  }
  if (projections != nullptr) x = join_streams(need(model, Role::AltUpUnembedProj), x);
  hidden_ = optional_norm(model, Role::FinalNorm, x);
  Vector logits = linear(head, hidden_);
  for (float& logit : logits) {
    logit = softcap(logit * graph_.facts.logit_scale, graph_.facts.logit_softcap);
  }
  return logits;
}

}  // namespace ktx::reference
