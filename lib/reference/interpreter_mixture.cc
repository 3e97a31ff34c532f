// Feed-forward parts: dense ones, and mixtures of experts.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"
#include "lib/reference/routing.h"

namespace ktx::reference {

using ir::Role;

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

}  // namespace ktx::reference
