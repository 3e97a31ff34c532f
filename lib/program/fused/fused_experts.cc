// experts: router, group_experts, experts_gate_up and experts_down.
#include <algorithm>
#include <set>

#include "lib/program/fused/expert_steps.h"
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {
namespace {

// Whether some choices are in another group.
bool sorts_some(const GroupSearch& search, int32_t group) {
  return std::get<GroupExpertsAttrs>(search.step(group).attrs).ranks != 0;
}

}  // namespace

std::optional<ExpertSteps> experts_of(const GroupSearch& search, int32_t router) {
  const int32_t ids = search.out(router, 0), weights = search.out(router, 1);
  ExpertSteps found{.router = router};
  for (int32_t i = router + 1; i < std::min(search.end(), router + kMostSpan); ++i) {
    if (search.is(i, StepOp::GroupExperts) && search.in(i, 0) == ids && !sorts_some(search, i)) {
      if (found.group != 0) return std::nullopt;
      found.group = i;
    } else if (found.group != 0 && search.is(i, StepOp::ExpertsGateUp) &&
               search.in(i, 2) == search.out(found.group, 0)) {
      found.gate_up = i;
    } else if (found.gate_up != 0 && search.is(i, StepOp::ExpertsDown) &&
               search.in(i, 0) == search.out(found.gate_up)) {
      found.down = i;
      break;
    }
  }
  if (found.down == 0 || search.in(found.down, 4) != weights) return std::nullopt;
  for (int32_t value : {ids, weights, search.out(found.group, 0), search.out(found.group, 1),
                        search.out(found.gate_up)}) {
    if (!search.only(value, found.all())) return std::nullopt;
  }
  return found;
}

// What the first of two launches writes is no output of the group, but is written. Not so ids,
// order and offsets, whose buffers may have other values by then.
void add_two_launches(GroupSearch& search, FusedOp op, const GroupSearch::Steps& steps,
                      const std::vector<int32_t>& read, const std::vector<int32_t>& between,
                      int32_t out) {
  std::set<int32_t> buffers = {search.buffer(out)};
  for (int32_t value : read) buffers.insert(search.buffer(value));
  for (int32_t value : between) {
    if (!buffers.insert(search.buffer(value)).second) return;
  }
  std::vector<int32_t> written = between;
  written.push_back(out);
  search.add(op, steps, read, written);
}

void find_experts(GroupSearch& search, int32_t router) {
  const auto found = experts_of(search, router);
  if (!found) return;
  add_two_launches(search, FusedOp::Experts, found->all(), found->read(search),
                   found->between(search), search.out(found->down));
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
