// Mixtures of experts, lowered: the router, groups of experts by device, deferred and shared ones.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/lower/lowering.h"
#include "lib/target/host_device.h"

namespace ktx::passes {

using ir::Module;
using ir::Param;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::View;

// Experts beside the dense part, with norms of their own.
Result<Lowering::Term> Lowering::lower_experts_beside(const Module& layer, const Module& block) {
  const View scored = value("router_norm", modules_.facts.hidden);
  KTX_TRY(norm(*KTX_TRY(child(block, Role::RouterNorm)), x_, scored));
  const View in = value("experts_norm", modules_.facts.hidden);
  KTX_TRY(norm(*KTX_TRY(child(layer, Role::ExpertsNorm)), x_, in));
  const Module& router = *KTX_TRY(child(block, Role::Router));
  const Module& experts = *KTX_TRY(child(layer, Role::Experts));
  const Terms terms = KTX_TRY(lower_routed(router, experts, scored, in));
  gather_host_experts();
  const View out = terms[0].view;
  for (size_t i = 1; i < terms.size(); ++i) add(terms[i], out);
  const Module* post = KTX_TRY(child(layer, Role::ExpertsPostNorm));
  KTX_TRY(norm(*post, out, out));
  return Term{post, out};
}

Result<Lowering::Terms> Lowering::lower_moe(const Module& layer, const Module& moe, View in) {
  const Module& router = *KTX_TRY(child(moe, Role::Router));
  const Module& experts = *KTX_TRY(child(moe, Role::Experts));
  const bool latent = modules_.child(moe, Role::LatentDownProj) != nullptr;
  const View read = latent ? KTX_TRY(linear(moe, Role::LatentDownProj, in, "experts_latent")) : in;
  Terms terms =
      KTX_TRY(lower_routed(router, experts, router_input_.width > 0 ? router_input_ : in, read));
  if (latent) {
    gather_host_experts();
    const View sum = terms[0].view;
    for (size_t i = 1; i < terms.size(); ++i) add(terms[i], sum);
    KTX_TRY(optional_norm(moe, Role::LatentNorm, sum));
    terms = {KTX_TRY(term(moe, Role::LatentUpProj, sum, "experts_up"))};
  }
  const Module* shared = modules_.child(moe, Role::SharedMlp);
  if (!shared) shared = modules_.child(layer, Role::SharedMlp);  // Granite
  if (shared) {
    terms.push_back(KTX_TRY(lower_shared_experts(moe, *shared, in)));
  }
  gather_host_experts();
  return terms;
}

// A copy of the stream before attention, where the layer's router reads that.
void Lowering::keep_router_input(const Module& layer) {
  router_input_ = {};
  const Module* moe = modules_.child(layer, Role::Moe);
  const Module* router = moe ? modules_.child(*moe, Role::Router) : nullptr;
  const auto* info = router ? std::get_if<ir::RouterInfo>(&router->info) : nullptr;
  if (!info || !info->reads_stream) return;
  router_input_ = value("router_in", x_.width);
  emit(*router, StepOp::Scale, {x_}, {router_input_}, {}, ScaleAttrs{1});
}

// `scored`: what the router reads.
Result<Lowering::Terms> Lowering::lower_routed(const Module& router, const Module& experts,
                                               View scored, View in) {
  const ir::RouterInfo* info = KTX_TRY(info_of<ir::RouterInfo>(router));
  const RouterAttrs& r = info->attrs;
  const View scores = value("router", r.experts);
  const BlobId router_weight = KTX_TRY(blob(router, "weight"));
  const BlobId router_bias = KTX_TRY(optional_blob(router, "bias"));
  emit(router, StepOp::Matmul, {scored, View{}}, {scores}, {router_weight, router_bias},
       MatmulAttrs{});
  const View ids = value("expert_ids", r.top_k, ValueType::I32);
  const View weights = value("expert_weights", r.top_k);
  const BlobId bias = KTX_TRY(optional_blob(router, "correction_bias"));
  const BlobId factors = KTX_TRY(optional_blob(router, "factors"));
  if (factors != kAbsent && experts.param("down_bias")) {
    return Error{fmt::format("module '{}' has factors and biases of down, which is not supported",
                             experts.path)};
  }
  const BlobId table = KTX_TRY(optional_blob(router, "table"));
  emit(router, StepOp::Router, {scores}, {ids, weights}, present({bias, factors, table}, 1), r);
  if (info->scales_input) {
    if (bias != kAbsent || factors != kAbsent) {
      return Error{fmt::format(
          "module '{}' scales its input and has a bias or factors, which is not supported",
          router.path)};
    }
    in = KTX_TRY(scaled_input(router, r, scores, in));
  }
  return lower_experts(experts, {r, in, ids, weights, target::cpu_beside(router.decision.device)});
}

// What the one expert of a token reads: its score, not normalised, times the input. (The weight
// of its output, normalised, is 1.)
Result<View> Lowering::scaled_input(const Module& router, RouterAttrs attrs, View scores, View in) {
  attrs.normalize = 0;
  const View ids = value("scored_ids", attrs.top_k, ValueType::I32);
  const View score = value("expert_score", attrs.top_k);
  emit(router, StepOp::Router, {scores}, {ids, score}, {kAbsent}, attrs);
  const View scaled = value("experts_in", in.width);
  emit(router, StepOp::RowScale, {in, score}, {scaled}, {}, NoAttrs{});
  return scaled;
}

// The pairs of a group, sorted on `device`, with the places that its experts have there.
Result<Lowering::Pairs> Lowering::group_pairs(const Module& experts, const ExpertGroup& group,
                                              const Routed& routed, const std::string& device) {
  const int32_t top_k = routed.router.top_k, all = routed.router.experts;
  const bool some = !group.experts.empty();
  const int32_t count = some ? static_cast<int32_t>(group.experts.size()) : all;
  const View order = value("expert_order" + group.suffix, top_k, ValueType::I32);
  const View offsets =
      value("expert_offsets" + group.suffix, int64_t{count} + 1, ValueType::I32, RowKind::Single);
  BlobId places = kAbsent;
  if (some || group.guests) {
    const std::string of = group.device == device ? "" : "_" + group.device;
    const std::string kind = group.guests ? "guest_places" : "places";
    places = constant(fmt::format("{}.{}{}@{}", experts.path, kind, of, device),
                      places_of(group, all), device);
  }
  emit_on(device, experts, StepOp::GroupExperts, {routed.ids}, {order, offsets}, {places},
          GroupExpertsAttrs{count, top_k, group.first_rank, group.ranks, group.guests ? 1 : 0});
  return Pairs{top_k, routed.in, order, offsets, routed.weights};
}

// Their products, on the group's device: the sum of a token's, or all of them in rows of `by_pair`.
Result<View> Lowering::expert_products(const Module& experts, const ExpertGroup& group,
                                       const Pairs& pairs, const View* by_pair) {
  const ir::ExpertsInfo* e = KTX_TRY(info_of<ir::ExpertsInfo>(experts));
  const bool some = !group.experts.empty();
  const int32_t count = some ? static_cast<int32_t>(group.experts.size()) : e->experts;
  const std::string& device = group.device;
  const View hidden =
      value("expert_hidden" + group.suffix, e->width, ValueType::F32, RowKind::Token, pairs.top_k);
  const auto weight = [&](const char* name) -> Result<BlobId> {
    const Param* param = experts.param(name);
    if (!param || !some) return blob(experts, name);
    Param part = KTX_TRY(experts_of(experts, *param, group.experts));
    if (group.guests) part.name += ".guests";  // fixed ones may be on the same device
    return blob_on(device, experts, &part);
  };
  const bool gated =
      experts.param("gate") != nullptr;  // else up is its own gate (Activation::Relu)
  const BlobId gate = KTX_TRY(weight(gated ? "gate" : "up"));
  const BlobId up = gated ? KTX_TRY(weight("up")) : gate;
  const auto optional = [&](const char* name) -> Result<BlobId> {
    return experts.param(name) ? weight(name) : BlobId{kAbsent};
  };
  const BlobId gate_bias = KTX_TRY(optional("gate_bias"));
  const BlobId up_bias = KTX_TRY(optional("up_bias"));
  const BlobId gate_factors = KTX_TRY(optional("gate_factors"));
  const BlobId up_factors = KTX_TRY(optional("up_factors"));
  emit_on(device, experts, StepOp::ExpertsGateUp, {pairs.in, View{}, pairs.order, pairs.offsets},
          {hidden}, present({gate, up, gate_bias, up_bias, gate_factors, up_factors}, 4),
          ExpertsAttrs{count, pairs.top_k, 0, e->glu.activation, e->glu.limit, 0, e->glu.up_limit});
  program_.steps.back().use = group.use;
  const BlobId down = KTX_TRY(weight("down"));
  const BlobId down_bias = KTX_TRY(optional("down_bias"));
  const View out = by_pair ? *by_pair : value("experts_out" + group.suffix, e->hidden);
  ExpertsAttrs attrs{count, pairs.top_k};
  attrs.by_pair = by_pair ? 1 : 0;
  emit_on(device, experts, StepOp::ExpertsDown,
          {hidden, View{}, pairs.order, pairs.offsets, pairs.weights}, {out}, {down, down_bias},
          attrs);
  program_.steps.back().use = group.use;
  return out;
}

// Experts of a layer on one device: all of them, or some (ir::ExpertSet) with numbers of their
// own, which group_experts finds in `places`.
Result<Lowering::Term> Lowering::lower_experts_on(const Module& experts, const ExpertGroup& group,
                                                  const Routed& routed) {
  const Pairs pairs = KTX_TRY(group_pairs(experts, group, routed, group.device));
  const View out = KTX_TRY(expert_products(experts, group, pairs));
  return Term{&experts, out, group.device};
}

std::vector<float> Lowering::places_of(const ExpertGroup& group, int32_t all) {
  std::vector<float> places(static_cast<size_t>(all), -1.0f);
  if (group.experts.empty()) std::iota(places.begin(), places.end(), 0.0f);
  for (size_t i = 0; i < group.experts.size(); ++i) {
    places[group.experts[i]] = static_cast<float>(i);
  }
  for (const int32_t expert : group.away) places[expert] = -1;
  return places;
}

// A term for each device, those of GPUs first, so that sums begin there. The CPU's steps come
// first: insert-transfers hands over what they read before the GPU goes on with its own experts.
Result<Lowering::Terms> Lowering::lower_experts(const Module& experts, const Routed& routed) {
  for (const ir::ExpertSet& set : experts.decision.expert_sets) {
    if (set.experts.empty() || set.device == "auto") {
      return Error{fmt::format("'{}': place-devices has not chosen which experts go to {}",
                               experts.path, set.device)};
    }
  }
  std::vector<ExpertGroup> groups = expert_groups(experts, routed.router.experts);
  const auto of_cpu = [](const ExpertGroup& group) { return target::is_cpu(group.device); };
  std::stable_partition(groups.begin(), groups.end(), of_cpu);
  const Terms late = KTX_TRY(lower_deferred());
  Terms cpu, others;
  if (const size_t hosts = cpu_groups(place_of(experts)); hosts > 1) {
    cpu.push_back(KTX_TRY(lower_host_experts(experts, std::span(groups).first(hosts), routed)));
    groups.erase(groups.begin(), groups.begin() + static_cast<ptrdiff_t>(hosts));
  }
  for (ExpertGroup& group : groups) {
    if (of_cpu(group)) KTX_TRY(defer(experts, group, routed));
    (of_cpu(group) ? cpu : others).push_back(KTX_TRY(lower_experts_on(experts, group, routed)));
  }
  for (const Terms& more : {cpu, late}) others.insert(others.end(), more.begin(), more.end());
  return others;
}

// Leaves the rule's share of a group to the next layer with experts (deferred_experts.h).
Status Lowering::defer(const Module& experts, ExpertGroup& group, const Routed& routed) {
  const int32_t deferred = deferred_steps(modules_, experts, place_of(experts));
  if (deferred == 0) return {};
  const std::string obstacle = deferral_obstacle(modules_, experts, deferred);
  if (!obstacle.empty()) return Error{fmt::format("'{}' {}", experts.path, obstacle)};
  deferred_.push_back({&experts, take_deferred(group, routed.router.top_k, deferred), routed});
  return {};
}

// What the layer before has left. It reads that layer's values, which stay where they are, and is
// a sum of its own: with those of this layer in one, a GPU could stream all layers or none.
Result<Lowering::Terms> Lowering::lower_deferred() {
  Terms terms;
  for (const Deferred& left : std::exchange(deferred_, {})) {
    const int32_t here = std::exchange(layer_, left.experts->layer);
    terms.push_back(KTX_TRY(lower_experts_on(*left.experts, left.group, left.routed)));
    layer_ = here;
  }
  return terms;
}

// A term of its own, so that the products need not wait for the routed experts.
Result<Lowering::Term> Lowering::lower_shared_experts(const Module& moe, const Module& shared,
                                                      View in) {
  const View up = KTX_TRY(mlp_hidden(shared, in));
  const Term out = KTX_TRY(term(shared, Role::DownProj, up, "shared_out"));
  if (const Module* gate = modules_.child(moe, Role::SharedGate)) {
    const View score = KTX_TRY(linear(moe, Role::SharedGate, in, "shared_score"));
    emit(*gate, StepOp::SigmoidScale, {out.view, score}, {out.view}, {}, NoAttrs{});
  }
  return Term{&shared, out.view};
}

}  // namespace ktx::passes
