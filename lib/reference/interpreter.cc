#include "lib/reference/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "lib/formats/dtype.h"
#include "lib/support/normal_quantile.h"

namespace ktx::reference {
namespace {

using ir::Role;

double dot(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

std::vector<float> glu(const GluAttrs& attrs, std::span<const float> gate,
                       std::span<const float> up) {
  std::vector<float> out(gate.size());
  for (size_t i = 0; i < out.size(); ++i) {
    double g = gate[i], u = up[i];
    const bool soft = attrs.activation == static_cast<int32_t>(Activation::Situ);
    if (attrs.activation == static_cast<int32_t>(Activation::SiluUpTo)) g /= 1 + std::exp(-g);
    if (attrs.limit > 0 && !soft) {
      const double limit = attrs.limit;
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
    }
    switch (static_cast<Activation>(attrs.activation)) {
      case Activation::Silu:
        g /= 1 + std::exp(-g);
        break;
      case Activation::GeluTanh:
        g *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
        break;
      case Activation::GptOss:
        g /= 1 + std::exp(-1.702 * g);
        u += 1;
        break;
      case Activation::Sigmoid:
        g = 1 / (1 + std::exp(-g));
        break;
      case Activation::Product:
      case Activation::SiluUpTo:
        break;
      case Activation::Relu:
        g = std::max(g, 0.0);
        break;
      case Activation::Situ:
        g = (attrs.limit > 0 ? attrs.limit * std::tanh(g / attrs.limit) : g) / (1 + std::exp(-g));
        if (attrs.up_limit > 0) u = attrs.up_limit * std::tanh(u / attrs.up_limit);
        break;
    }
    out[i] = static_cast<float>(g * u);
  }
  return out;
}

// The activation of a unit without a gate.
float unit(const ActivateAttrs& attrs, double x) {
  const double slope = attrs.slope * x;
  switch (static_cast<UnitFunction>(attrs.function)) {
    case UnitFunction::Silu:
      return static_cast<float>(x / (1 + std::exp(-x)));
    case UnitFunction::GeluTanh:
      x *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      return static_cast<float>(x);
    case UnitFunction::GeluErf:
      return static_cast<float>(0.5 * x * std::erfc(-x / std::numbers::sqrt2));
    case UnitFunction::Relu:
      return static_cast<float>(std::max(x, 0.0));
    case UnitFunction::ReluSquared:
      return static_cast<float>(std::max(x, 0.0) * std::max(x, 0.0));
    case UnitFunction::Tanh:
      return static_cast<float>(std::tanh(x));
    case UnitFunction::Xielu:
      if (x > 0) return static_cast<float>(attrs.rise * x * x + slope);
      x = std::expm1(std::min<double>(x, attrs.limit)) - x;
      return static_cast<float>(attrs.fall * x + slope);
    case UnitFunction::Clamp:
      return std::clamp(static_cast<float>(x), -attrs.limit, attrs.limit);
    case UnitFunction::SignedRoot:
      return static_cast<float>(
          x == 0 ? 0 : std::copysign(std::sqrt(std::max(std::abs(x), double{kLeastRooted})), x));
  }
  return NAN;
}

// 0: as it is.
void clamp(float limit, std::span<float> x) {
  for (float& value : x) value = limit > 0 ? std::clamp(value, -limit, limit) : value;
}

// What is below a quantile of the normal distribution that has the elements' mean and deviation.
void leave_out(double share, std::span<float> x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  for (const float value : x) mean += value / n;
  for (const float value : x) squares += (value - mean) * (value - mean);
  const double cut = mean + normal_quantile(share) * std::sqrt(squares / n);
  for (float& value : x) value = static_cast<float>(std::max(value - cut, 0.0));
}

float softcap(float x, float cap) {
  return cap > 0 ? static_cast<float>(cap * std::tanh(double{x} / cap)) : x;
}

void add_to(std::span<float> y, std::span<const float> x, float factor = 1) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

// The bytes of rows [first, first + count) of a tensor, `cols` elements each; empty where it has
// not so many.
std::span<const std::byte> tensor_rows(const input::GgufFile& gguf, const ir::Param& param,
                                       const std::string& name, int64_t first, int64_t count) {
  const input::GgufTensor* tensor = gguf.find(name);
  const auto row = row_bytes(param.dtype, param.cols);
  if (tensor == nullptr || tensor->dtype != param.dtype || !row || tensor->bytes.empty()) return {};
  if (first < 0 || count < 0 || first + count > tensor->elems / param.cols) return {};
  return tensor->bytes.subspan(static_cast<size_t>(first * *row),
                               static_cast<size_t>(count * *row));
}

// Rows of a slice that goes to the end of its tensor, too; -1: there is no such tensor.
int64_t row_count(const input::GgufFile& gguf, const ir::Param& param, const TensorSlice& slice) {
  if (slice.row_count >= 0) return slice.row_count;
  const input::GgufTensor* tensor = gguf.find(slice.tensor);
  return tensor != nullptr ? tensor->elems / param.cols - slice.first_row : -1;
}

Status check_sources(const ir::Param& param, const input::GgufFile& gguf) {
  int64_t rows = 0;
  for (const TensorSlice& slice : param.sources) {
    const int64_t count = row_count(gguf, param, slice);
    if (tensor_rows(gguf, param, slice.tensor, slice.first_row, count).empty()) {
      return Error{
          fmt::format("{}: tensor '{}' does not have the {} rows from {} that the graph "
                      "reads",
                      gguf.path(), slice.tensor, count, slice.first_row)};
    }
    rows += count;
  }
  if (rows == param.rows * param.matrices) return {};
  return Error{fmt::format("{}: {} rows for the {} of '{}'", gguf.path(), rows,
                           param.rows * param.matrices, param.name)};
}

// Rows [first, first + count) of a parameter whose sources were checked, of all its matrices.
std::vector<float> dequantise(const ir::Param& param, const input::GgufFile& gguf, int64_t first,
                              int64_t count) {
  std::vector<float> out(static_cast<size_t>(count * param.cols));
  float* to = out.data();
  for (const TensorSlice& slice : param.sources) {
    const int64_t rows = row_count(gguf, param, slice);
    const int64_t here = std::clamp<int64_t>(rows - first, 0, count);
    if (here > 0) {
      const auto from = tensor_rows(gguf, param, slice.tensor, slice.first_row + first, here);
      const int64_t elems = here * param.cols;
      if (param.dtype == DType::I32) {  // numbers of experts, as floats
        for (int64_t i = 0; i < elems; ++i) {
          int32_t number;
          std::memcpy(&number, from.data() + 4 * i, sizeof number);
          to[i] = static_cast<float>(number);
        }
      } else {
        dequantize_row(param.dtype, from.data(), elems, to);
      }
      to += elems;
      count -= here;
    }
    first = std::max<int64_t>(first - rows, 0);
  }
  return out;
}

}  // namespace

namespace {

std::vector<double> scores_of(const RouterAttrs& attrs, std::span<const float> logits) {
  std::vector<double> score(logits.size());
  if (attrs.scoring == static_cast<int32_t>(Scoring::Sigmoid)) {
    for (size_t i = 0; i < score.size(); ++i) score[i] = 1 / (1 + std::exp(-double{logits[i]}));
  } else if (attrs.scoring == static_cast<int32_t>(Scoring::SqrtSoftplus)) {
    for (size_t i = 0; i < score.size(); ++i) {
      score[i] = std::sqrt(std::log1p(std::exp(double{logits[i]})));
    }
  } else {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (size_t i = 0; i < score.size(); ++i) sum += score[i] = std::exp(logits[i] - top);
    for (double& s : score) s /= sum;
  }
  return score;
}

// With the weights that the scores give them.
std::vector<std::pair<int32_t, float>> weighted(const RouterAttrs& attrs,
                                                std::span<const double> score,
                                                std::span<const int32_t> experts) {
  double sum = 1e-20;
  for (int32_t expert : experts) sum += score[expert];
  std::vector<std::pair<int32_t, float>> out;
  for (int32_t expert : experts) {
    const double weight = score[expert] / (attrs.normalize ? sum : 1.0) * attrs.scale;
    out.emplace_back(expert, static_cast<float>(weight));
  }
  return out;
}

}  // namespace

namespace {

std::vector<std::pair<int32_t, float>> mix_sparsely(int32_t rounds, std::span<const float> logits) {
  std::vector<std::pair<int32_t, float>> out;
  std::vector<double> left(logits.begin(), logits.end());
  for (int32_t i = 0; i < rounds; ++i) {
    const auto best = std::ranges::max_element(left);
    double sum = 0;
    for (const double x : left) {
      const bool far = (*best - x) / std::max(std::abs(x), *best) > kSparseMixerReach;
      if (!far) sum += std::exp(x - *best);
    }
    out.emplace_back(static_cast<int32_t>(best - left.begin()), static_cast<float>(1 / sum));
    *best = -INFINITY;
  }
  return out;
}

}  // namespace

std::vector<std::pair<int32_t, float>> route(const RouterAttrs& attrs,
                                             std::span<const float> logits,
                                             std::span<const float> bias) {
  if (attrs.scoring == static_cast<int32_t>(Scoring::SparseMixer)) {
    return mix_sparsely(attrs.top_k, logits);
  }
  const size_t n = logits.size();
  const std::vector<double> score = scores_of(attrs, logits);
  std::vector<double> choice(n);
  for (size_t i = 0; i < n; ++i) choice[i] = score[i] + (bias.empty() ? 0.0 : bias[i]);

  if (attrs.groups > 1) {
    const size_t size = n / attrs.groups;
    std::vector<std::pair<double, int32_t>> groups;
    for (int32_t g = 0; g < attrs.groups; ++g) {
      std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      const bool two = attrs.group_score == static_cast<int32_t>(GroupScore::SumOfTwoBest);
      groups.push_back({members[0] + (two ? members[1] : 0), g});
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (int32_t i = attrs.groups_used; i < attrs.groups; ++i) {
      const size_t first = groups[i].second * size;
      std::fill_n(choice.begin() + static_cast<int64_t>(first), size, -INFINITY);
    }
  }
  std::vector<int32_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return choice[a] > choice[b]; });
  order.resize(attrs.top_k);
  return weighted(attrs, score, order);
}

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

void Interpreter::grow(const PositionScaleAttrs& attrs, std::span<float> q, int64_t more) const {
  const auto contexts = static_cast<double>((position_ + more) / attrs.context);
  const double factor = 1 + attrs.growth * std::log(1 + contexts);
  for (float& value : q) value = static_cast<float>(value * factor);
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

// Queries, keys and values in front of their convolution.
Interpreter::Vector Interpreter::delta_inputs(const ir::Module& module,
                                              const ir::DeltaNetInfo& info,
                                              std::span<const float> x) const {
  if (!info.by_channel) return linear(need(module, Role::DeltaQkvProj), x);
  Vector all;
  for (const Role role : {Role::QProj, Role::KProj, Role::VProj}) {
    const Vector part = linear(need(module, role), x);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// silu of the weighted sum of each channel's last inputs.
Interpreter::Vector Interpreter::convolve(const ir::Module& module, int32_t taps, Vector input,
                                          bool plain) {
  std::vector<Vector>& inputs = caches_[module.layer].inputs;
  Vector out(input.size());
  inputs.push_back(std::move(input));
  const auto joined = weights(module, "conv");
  Vector weight(joined.begin(), joined.end());
  for (const char* part : {"conv_q", "conv_k", "conv_v"}) {
    const auto own = weights(module, part);
    weight.insert(weight.end(), own.begin(), own.end());
  }
  const auto bias = weights(module, "conv_bias");
  for (size_t channel = 0; channel < out.size(); ++channel) {
    double sum = bias.empty() ? 0 : bias[channel];
    for (int32_t back = 0; back < taps && back < std::ssize(inputs); ++back) {
      sum += static_cast<double>(weight[channel * taps + taps - 1 - back]) *
             inputs[inputs.size() - 1 - back][channel];
    }
    out[channel] = static_cast<float>(plain ? sum : sum / (1 + std::exp(-sum)));
  }
  return out;
}

Interpreter::Vector Interpreter::short_conv(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::ShortConvInfo>(module.info);
  const auto width = static_cast<size_t>(info.width);
  const Vector projected = linear(need(module, Role::ShortConvProj), x);
  Vector gated(width);
  for (size_t i = 0; i < width; ++i) gated[i] = projected[i] * projected[2 * width + i];
  Vector out = convolve(module, info.taps, std::move(gated), true);
  for (size_t i = 0; i < width; ++i) out[i] *= projected[width + i];
  return linear(need(module, Role::OProj), out);
}

// The gated delta rule, as DeltaRuleAttrs says it.
Interpreter::Vector Interpreter::delta_net(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::DeltaNetInfo>(module.info);
  const int32_t dim = info.head_dim, repeats = info.value_heads / info.key_heads;
  const Vector mixed = convolve(module, info.taps, delta_inputs(module, info, x));
  const ir::Module* const whole_gate = graph_.child(module, Role::DeltaGateProj);
  const Vector gate = whole_gate != nullptr ? linear(*whole_gate, x)
                                            : linear(need(module, Role::DeltaGateBProj),
                                                     linear(need(module, Role::DeltaGateAProj), x));
  Vector b, a;
  if (info.by_channel) {
    const ir::Module& forget = need(module, Role::DeltaForget);
    b = linear(need(module, Role::DeltaBProj), x);
    const ir::Module* const whole = graph_.child(forget, Role::DeltaAProj);
    a = whole != nullptr ? linear(*whole, x)
                         : linear(need(forget, Role::DeltaForgetBProj),
                                  linear(need(forget, Role::DeltaForgetAProj), x));
  } else if (const ir::Module* both = graph_.child(module, Role::DeltaBaProj)) {
    const Vector ba = linear(*both, x);
    for (size_t i = 0; i < ba.size(); ++i) (i / repeats % 2 == 0 ? b : a).push_back(ba[i]);
  } else {
    b = linear(need(module, Role::DeltaBProj), x);
    a = linear(need(module, Role::DeltaAProj), x);
  }
  const auto decay = weights(module, "decay"), dt_bias = weights(module, "dt_bias");
  std::vector<double>& matrices = caches_[module.layer].matrices;
  matrices.resize(static_cast<size_t>(info.value_heads) * dim * dim);
  const auto normalised = [&](const float* from) {
    std::vector<double> out(from, from + dim);
    const double length = std::sqrt(dot(from, from, static_cast<size_t>(dim)) + 1e-6);
    for (double& value : out) value /= length;
    return out;
  };
  Vector out(static_cast<size_t>(info.width()));
  for (int32_t head = 0; head < info.value_heads; ++head) {
    const int32_t key_head = info.tiled ? head % info.key_heads : head / repeats;
    const std::vector<double> q = normalised(&mixed[key_head * dim]);
    const std::vector<double> k = normalised(&mixed[(info.key_heads + key_head) * dim]);
    const float* v = &mixed[(2 * info.key_heads + head) * dim];
    double* matrix = &matrices[static_cast<size_t>(head) * dim * dim];
    const double strength = 1 / (1 + std::exp(-double{b[head]}));
    for (int32_t row = 0; row < dim; ++row) {
      const size_t at = info.by_channel ? head * dim + row : head;
      const double rate = double{a[at]} + dt_bias[at];
      const double kept =
          info.lower_bound < 0
              ? std::exp(info.lower_bound / (1 + std::exp(-std::abs(decay[head]) * rate)))
              : std::exp(decay[head] * std::log1p(std::exp(rate)));
      for (int32_t column = 0; column < dim; ++column) matrix[row * dim + column] *= kept;
    }
    for (int32_t column = 0; column < dim; ++column) {
      double known = 0;
      for (int32_t row = 0; row < dim; ++row) known += k[row] * matrix[row * dim + column];
      const double change = strength * (v[column] - known);
      double read = 0;
      for (int32_t row = 0; row < dim; ++row) {
        matrix[row * dim + column] += k[row] * change;
        read += q[row] * matrix[row * dim + column];
      }
      out[head * dim + column] = static_cast<float>(read / std::sqrt(dim));
    }
  }
  out = norm(need(module, Role::DeltaNorm), out);
  for (size_t i = 0; i < out.size(); ++i) {
    const bool sigmoid = info.by_channel || info.sigmoid_gate;
    out[i] *= (sigmoid ? 1 : gate[i]) / (1 + std::exp(-gate[i]));
  }
  return linear(need(module, Role::OProj), out);
}

// A state space, as StateSpaceAttrs says it.
Interpreter::Vector Interpreter::state_space(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::StateSpaceInfo>(module.info);
  const size_t width = info.width(), channels = info.channels();
  const size_t dim = info.head_dim, rows = info.state_dim;
  const Vector projected = linear(need(module, Role::SsmInProj), x);
  const auto first = projected.begin() + static_cast<std::ptrdiff_t>(width);
  const Vector mixed =
      convolve(module, info.taps, Vector(first, first + static_cast<std::ptrdiff_t>(channels)));
  const auto decay = weights(module, "decay"), skip = weights(module, "skip");
  const auto dt_bias = weights(module, "dt_bias");
  std::vector<double>& matrices = caches_[module.layer].matrices;
  matrices.resize(width * rows);
  Vector out(width);
  for (size_t head = 0; head < static_cast<size_t>(info.heads); ++head) {
    const size_t group = head / (info.heads / info.groups);
    const float* const in = &mixed[width + group * rows];
    const float* const read = in + info.groups * rows;
    double step = std::log1p(std::exp(double{projected[width + channels + head]} + dt_bias[head]));
    step = std::max<double>(step, info.step_min);
    if (info.step_max > 0) step = std::min<double>(step, info.step_max);
    const double kept = std::exp(decay[head] * step);
    for (size_t c = 0; c < dim; ++c) {
      const double value = mixed[head * dim + c];
      double sum = skip[head] * value;
      for (size_t row = 0; row < rows; ++row) {
        double& m = matrices[(head * rows + row) * dim + c];
        m = m * kept + in[row] * step * value;
        sum += read[row] * m;
      }
      out[head * dim + c] = static_cast<float>(sum);
    }
  }
  if (info.norm_first) out = optional_norm(module, Role::SsmNorm, std::move(out));
  for (size_t i = 0; i < width; ++i) out[i] *= projected[i] / (1 + std::exp(-projected[i]));
  if (!info.norm_first) out = optional_norm(module, Role::SsmNorm, std::move(out));
  return linear(need(module, Role::OProj), out);
}

Interpreter::Vector Interpreter::selective_scan(const ir::Module& module,
                                                std::span<const float> x) {
  const auto& info = std::get<ir::SelectiveScanInfo>(module.info);
  const size_t channels = info.channels, state = info.state_dim, rank = info.step_rank;
  const Vector projected = linear(need(module, Role::SsmInProj), x);
  const auto middle = projected.begin() + info.channels;
  const Vector mixed = convolve(module, info.taps, Vector(projected.begin(), middle));
  const Vector params = linear(need(module, Role::SsmParamsProj), mixed);
  const auto part = [&](Role role, size_t first, size_t count) {
    const auto own = std::span(params).subspan(first, count);
    return optional_norm(module, role, Vector(own.begin(), own.end()));
  };
  const Vector steps = linear(need(module, Role::SsmStepProj), part(Role::SsmStepNorm, 0, rank));
  const Vector in = part(Role::SsmInputNorm, rank, state);
  const Vector read = part(Role::SsmOutputNorm, rank + state, state);
  const auto decay = weights(module, "decay"), skip = weights(module, "skip");
  std::vector<double>& matrices = caches_[module.layer].matrices;
  matrices.resize(channels * state);
  Vector out(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double step = std::log1p(std::exp(double{steps[c]})), value = mixed[c];
    double sum = skip[c] * value;
    for (size_t i = 0; i < state; ++i) {
      double& m = matrices[c * state + i];
      m = m * std::exp(decay[c * state + i] * step) + in[i] * step * value;
      sum += read[i] * m;
    }
    const double gate = projected[channels + c];
    out[c] = static_cast<float>(sum * gate / (1 + std::exp(-gate)));
  }
  return linear(need(module, Role::OProj), out);
}

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

namespace {

double mean_square(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += double{value} * value;
  return sum / static_cast<double>(x.size());
}

// As large as `like`.
void match_size(std::span<float> x, std::span<const float> like) {
  const double factor = std::sqrt(mean_square(like)) / std::sqrt(std::max(mean_square(x), 1e-5));
  for (float& value : x) value = static_cast<float>(value * factor);
}

}  // namespace

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

std::vector<std::pair<int32_t, float>> Interpreter::route_by_table(
    const ir::Module& router, std::span<const float> logits) const {
  const auto& attrs = std::get<ir::RouterInfo>(router.info).attrs;
  const auto row = rows(router, "table", token_, 1);
  std::vector<int32_t> experts;
  for (const float expert : row) experts.push_back(static_cast<int32_t>(expert));
  return weighted(attrs, scores_of(attrs, logits), experts);
}

Interpreter::Vector Interpreter::mlp(const ir::Module& module, std::span<const float> x) const {
  const auto& info = std::get<ir::MlpInfo>(module.info);
  const GluAttrs& attrs = info.glu;
  const size_t width = info.width;
  const auto bend = [&](Vector& inner) {
    for (float& value : inner) value = unit(info.activate(), value);
  };
  if (!graph_.child(module, Role::GateProj) && !graph_.child(module, Role::GateUpProj)) {
    Vector inner = linear(need(module, Role::UpProj), x);
    bend(inner);
    return linear(need(module, Role::DownProj), optional_norm(module, Role::MlpInnerNorm, inner));
  }
  Vector gate = part_linear(module, Role::GateProj, Role::GateUpProj, 0, width, x);
  if (info.sparsity > 0) leave_out(info.sparsity, gate);
  if (info.unit >= 0) bend(gate);
  const Vector up = part_linear(module, Role::UpProj, Role::GateUpProj, width, width, x);
  return linear(need(module, Role::DownProj),
                optional_norm(module, Role::MlpInnerNorm, glu(attrs, gate, up)));
}

// `scored`: what the router reads.
Interpreter::Vector Interpreter::routed(const ir::Module& router, const ir::Module& experts,
                                        std::span<const float> scored,
                                        std::span<const float> x) const {
  const auto& info = std::get<ir::ExpertsInfo>(experts.info);
  const Vector logits = linear(router, scored);
  Vector y(x.size()), scaled;
  const auto factors = weights(router, "factors");
  const auto& how = std::get<ir::RouterInfo>(router.info);
  if (how.scales_input) {  // of the one expert
    const double score = 1 / (1 + std::exp(-double{*std::ranges::max_element(logits)}));
    for (const float value : x) scaled.push_back(static_cast<float>(value * score));
    x = scaled;
  }
  const auto chosen = !has(router, "table")
                          ? route(how.attrs, logits, weights(router, "correction_bias"))
                          : route_by_table(router, logits);
  for (const auto& [expert, weight] : chosen) {
    const auto matrix = [&, e = expert](const char* name) {
      const bool down = std::string_view(name) == "down";
      const int64_t count = down ? info.hidden : info.width;
      return rows(experts, name, e * count, count);
    };
    const auto product = [&, e = expert](const char* name, std::span<const float> in) {
      Vector out = multiply(matrix(name), in);
      const auto factors = weights(experts, std::string(name) + "_factors");
      for (float& value : out) value *= factors.empty() ? 1 : factors[e];
      const auto bias = weights(experts, std::string(name) + "_bias");
      if (!bias.empty()) add_to(out, bias.subspan(e * out.size(), out.size()));
      return out;
    };
    const char* const gate = has(experts, "gate") ? "gate" : "up";
    const Vector inner = glu(info.glu, product(gate, x), product("up", x));
    add_to(y, product("down", inner), factors.empty() ? weight : weight * factors[expert]);
  }
  return y;
}

Interpreter::Vector Interpreter::moe(const ir::Module& module, std::span<const float> x) const {
  const ir::Module* down = graph_.child(module, Role::LatentDownProj);
  const Vector in(x.begin(), x.end());
  const Vector read = down != nullptr ? linear(*down, x) : in;
  const ir::Module& router = need(module, Role::Router);
  const bool early = std::get<ir::RouterInfo>(router.info).reads_stream;
  Vector y = routed(router, need(module, Role::Experts), early ? streams_.back() : in, read);
  if (down != nullptr) {
    y = linear(need(module, Role::LatentUpProj), optional_norm(module, Role::LatentNorm, y));
  }
  const ir::Module* shared = graph_.child(module, Role::SharedMlp);
  if (shared == nullptr) shared = graph_.child(graph_.modules[module.parent], Role::SharedMlp);
  if (shared != nullptr) {
    float factor = 1;
    if (const ir::Module* gate = graph_.child(module, Role::SharedGate)) {
      factor = 1 / (1 + std::exp(-linear(*gate, x)[0]));
    }
    add_to(y, mlp(*shared, x), factor);
  }
  return y;
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
