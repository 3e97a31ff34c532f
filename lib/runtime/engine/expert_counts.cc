#include "lib/runtime/engine/expert_counts.h"

#include "kernels/router/expert_places.h"
#include "lib/ops/step_attrs.h"

namespace ktx::runtime {

ExpertCounts::ExpertCounts(const plan::PlanView& plan, const BoundParts& parts, bool by_expert)
    : plan_(plan), by_expert_(by_expert), streamed_of_token_(parts.parts.size()) {
  int64_t first = 0;
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const plan::StepRecord& step = plan.steps[i];
    const auto op = static_cast<StepOp>(step.op);
    if (op == StepOp::Router) pairs_of_token_ += plan.attrs_of<RouterAttrs>(step).top_k;
    if (op != StepOp::GroupExperts) continue;
    Step& own = steps_.emplace_back();
    own.step = i;
    own.first = first;
    own.routed = own.experts = plan.attrs_of<GroupExpertsAttrs>(step).experts;
    const auto weights = plan.weights(step);
    if (!weights.empty() && weights[0] != plan::kNone) {
      const plan::BlobRecord& places = plan.blobs[weights[0]];
      own.routed = static_cast<int32_t>(places.cols);
      own.places = reinterpret_cast<const float*>(plan.file.data() + places.offset);
    }
    first += own.experts;
  }
  if (by_expert_) counts_.resize(static_cast<size_t>(first));
  for (size_t p = 0; p < parts.parts.size(); ++p) {
    const Part& part = parts.parts[p];
    if (part.kind != Part::Kind::Cpu) continue;
    for (const Step& own : steps_) {
      const bool here = own.step >= part.first_step && own.step - part.first_step < part.step_count;
      if (!here) continue;
      streamed_of_token_[p] +=
          plan.attrs_of<GroupExpertsAttrs>(plan.steps[own.step]).pairs_of_token();
    }
  }
}

int64_t ExpertCounts::first(uint32_t step) const {
  for (const Step& own : steps_) {
    if (own.step == step) return own.first;
  }
  return -1;
}

uint64_t* ExpertCounts::of_step(uint32_t step) {
  const int64_t at = by_expert_ ? first(step) : -1;
  return at < 0 ? nullptr : counts_.data() + at;
}

void ExpertCounts::add_forward(int64_t tokens, int64_t cpu, const std::vector<bool>& taken,
                               int64_t joint) {
  int64_t streamed = -joint;
  for (size_t p = 0; p < taken.size(); ++p) {
    if (taken[p]) streamed += tokens * streamed_of_token_[p];
  }
  use_.cpu += cpu;
  use_.streamed += streamed;
  use_.gpu += tokens * pairs_of_token_ - streamed - cpu;
}

void ExpertCounts::add_to(std::span<uint64_t> counts) const {
  for (size_t i = 0; i < counts_.size() && i < counts.size(); ++i) counts[i] += counts_[i];
}

plan::ExpertProfile ExpertCounts::profile(std::span<const uint64_t> of_gpus) const {
  plan::ExpertProfile profile;
  profile.architecture = plan_.facts.architecture;
  for (const Step& own : steps_) {
    std::vector<uint64_t>& layer = profile.layers[plan_.steps[own.step].layer];
    if (std::ssize(layer) < own.routed) layer.resize(static_cast<size_t>(own.routed));
    for (int32_t e = 0; e < own.routed; ++e) {
      const int32_t place = own.places ? kernels::place_of_expert(own.places[e], own.experts) : e;
      if (place < 0) continue;
      const auto at = static_cast<size_t>(own.first + place);
      layer[e] += counts_[at] + (of_gpus.empty() ? 0 : of_gpus[at]);
    }
  }
  return profile;
}

}  // namespace ktx::runtime
