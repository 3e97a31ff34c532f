// Counts the activations of routed experts (a token, one of the experts that it was routed to).
//
// In every pass, without asking a GPU: how many the CPU served (CPU steps say so), how many belong
// to layers that were streamed, and hence how many GPUs served with experts of their own.
//
// Per expert only on request (EngineOptions::count_experts, --record-experts): each
// group_experts step adds to counters of its own, on the CPU here and on a GPU in its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/plan/expert_profile.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/expert_use.h"

namespace ktx::runtime {

class ExpertCounts {
 public:
  ExpertCounts(const plan::PlanView& plan, const BoundParts& parts, bool by_expert);

  bool by_expert() const { return by_expert_; }
  // The first of the plan's counters that belongs to a group_experts step; -1: another step.
  int64_t first(uint32_t step) const;
  size_t size() const { return counts_.size(); }  // of all counters
  // The CPU's counters of the step; null where nothing is counted by expert.
  uint64_t* of_step(uint32_t step);
  // Where the CPU's steps add the activations that they serve, and other hosts theirs.
  int64_t* cpu_pairs() { return &cpu_pairs_; }

  // After a pass of so many tokens, if it was not ended early. `cpu`: activations added to
  // cpu_pairs() during this pass; `taken[part]`: a GPU streamed that part of the CPU.
  void add_forward(int64_t tokens, int64_t cpu, const std::vector<bool>& taken, int64_t joint);
  const ExpertUse& use() const { return use_; }

  // What was counted by expert: the CPU's counters and those of GPUs, `counts` of size() each.
  plan::ExpertProfile profile(std::span<const uint64_t> of_gpus) const;
  // Adds the CPU's counters.
  void add_to(std::span<uint64_t> counts) const;

 private:
  struct Step {
    uint32_t step = 0;
    int64_t first = 0;
    int64_t of_token = 0;  // activations, at most
    int32_t experts = 0;
    int32_t routed = 0;             // experts that the router chooses from
    const float* places = nullptr;  // [routed]; null: all are here
  };

  const plan::PlanView& plan_;
  const bool by_expert_;
  std::vector<Step> steps_;
  std::vector<uint64_t> counts_;
  int64_t pairs_of_token_ = 0;
  std::vector<int64_t> streamed_of_token_;  // by part: of layers that it has experts of
  int64_t cpu_pairs_ = 0;
  ExpertUse use_;
};

}  // namespace ktx::runtime
