#include "lib/runtime/engine/expert_counts.h"

#include "kernels/router/expert_places.h"
#include "lib/program/program.h"

namespace ktx::runtime {

ExpertCounts::ExpertCounts(const plan::PlanView& plan, const BoundParts& parts, bool by_expert)
    : plan_(plan), by_expert_(by_expert), streamed_of_token_(parts.parts.size()) {
  int64_t first = 0;
  const program::Program& program = *plan.program;
  for (uint32_t i = 0; i < program.steps.size(); ++i) {
    const program::Step& step = program.steps[i];
    if (const auto* router = std::get_if<RouterAttrs>(&step.attrs)) {
      pairs_of_token_ += router->top_k;
    }
    const auto* const group = std::get_if<GroupExpertsAttrs>(&step.attrs);
    if (group == nullptr) continue;
    Step& own = steps_.emplace_back();
    own.step = i;
    own.first = first;
    own.routed = own.experts = group->experts;
    own.of_token = group->pairs_of_token();
    if (const program::Blob* const places = program.weight(step, 0)) {
      own.routed = static_cast<int32_t>(places->cols);
      own.places = reinterpret_cast<const float*>(plan.blob_bytes(step.weights[0]).data());
    }
    first += own.experts;
  }
  if (by_expert_) counts_.resize(static_cast<size_t>(first));
  for (size_t p = 0; p < parts.parts.size(); ++p) {
    const Part& part = parts.parts[p];
    if (part.kind != Part::Kind::Cpu) continue;
    for (const Step& own : steps_) {
      const bool here = own.step >= part.first_step && own.step - part.first_step < part.step_count;
      if (here) streamed_of_token_[p] += own.of_token;
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
    std::vector<uint64_t>& layer = profile.layers[plan_.program->steps[own.step].layer];
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
