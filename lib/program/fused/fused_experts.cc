// experts: router, group_experts, experts_gate_up and experts_down.
#include <algorithm>

#include "lib/program/fused/fused_rules.h"

namespace ktx::program {
namespace {

// Whether some choices are in another group.
bool sorts_some(const GroupSearch& search, int32_t group) {
  return std::get<GroupExpertsAttrs>(search.step(group).attrs).ranks != 0;
}

}  // namespace

void find_experts(GroupSearch& search, int32_t router) {
  const int32_t ids = search.out(router, 0), weights = search.out(router, 1);
  GroupSearch::Steps steps = {router};
  int32_t gate_up = 0, down = 0;
  for (int32_t i = router + 1; i < std::min(search.end(), router + kMostSpan); ++i) {
    if (search.is(i, StepOp::GroupExperts) && search.in(i, 0) == ids && !sorts_some(search, i)) {
      steps.push_back(i);
    } else if (steps.size() == 2 && search.is(i, StepOp::ExpertsGateUp) &&
               search.in(i, 2) == search.out(steps[1], 0)) {
      steps.push_back(gate_up = i);
    } else if (steps.size() == 3 && search.is(i, StepOp::ExpertsDown) &&
               search.in(i, 0) == search.out(gate_up)) {
      steps.push_back(down = i);
      break;
    }
  }
  if (down == 0 || search.in(down, 4) != weights) return;
  for (int32_t value :
       {ids, weights, search.out(steps[1], 0), search.out(steps[1], 1), search.out(gate_up)}) {
    if (!search.only(value, steps)) return;
  }
  // Two launches: what the first writes is no output of the group, but is written. Not so ids,
  // order and offsets, whose buffers may have other values by then.
  const std::vector<int32_t> read = {search.in(router, 0), search.in(gate_up, 0)};
  const std::vector<int32_t> between = {weights, search.out(gate_up)};
  for (int32_t value : between) {
    for (int32_t other : read) {
      if (search.buffer(value) == search.buffer(other)) return;
    }
    if (search.buffer(value) == search.buffer(search.out(down))) return;
  }
  search.add(FusedOp::Experts, steps, read, {weights, search.out(gate_up), search.out(down)});
}

void describe_experts(kernels::GpuForm& form, const GroupMembers& steps) {
  const Step& gate_up = steps.of(StepOp::ExpertsGateUp);
  const auto& router = steps.attrs<RouterAttrs>(StepOp::Router);
  form.experts = router.experts;
  form.top_k = router.top_k;
  form.weights = {steps.weight(gate_up, 0), steps.weight(gate_up, 1),
                  steps.weight(steps.of(StepOp::ExpertsDown))};
  form.aligned = steps.aligned(gate_up.inputs[0], 4) && steps.aligned(gate_up.outputs[0], 4) &&
                 gate_up.outputs[0].width / router.top_k % 4 == 0;
}

}  // namespace ktx::program
