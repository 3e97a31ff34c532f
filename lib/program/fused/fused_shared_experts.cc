// shared_experts: routed experts that add to the residual, and a shared expert that is added behind
// them, with or without a score of its own.
//
//   x += experts(n)
//   x += sigmoid(score . n) * (down . glu(gate . n, up . n))
#include <algorithm>

#include "lib/program/fused/expert_steps.h"
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {
namespace {

// The step of this op that wrote operand `operand` of step `i`; -1: another op did.
int32_t maker(const GroupSearch& search, int32_t i, size_t operand, StepOp op) {
  const auto writer = search.writer(search.in(i, operand), i);
  return writer && search.is(*writer, op) ? *writer : -1;
}
int32_t product(const GroupSearch& search, int32_t i, size_t operand) {
  const int32_t made = maker(search, i, operand, StepOp::Matmul);
  return made >= 0 && search.is_product(made) ? made : -1;
}

// The experts that added to the residual right before `add`.
std::optional<ExpertSteps> experts_before(const GroupSearch& search, int32_t add) {
  const int32_t down = maker(search, add, 0, StepOp::ExpertsDown);
  if (down < 0 || search.attrs<ExpertsAttrs>(down).accumulate == 0) return std::nullopt;
  const int32_t router = maker(search, down, 4, StepOp::Router);
  if (router < 0) return std::nullopt;
  const auto found = experts_of(search, router);
  return found && found->down == down ? found : std::nullopt;
}

}  // namespace

void find_shared_experts(GroupSearch& search, int32_t add) {
  if (search.in(add, 0) != search.out(add)) return;
  const auto experts = experts_before(search, add);
  if (!experts) return;
  const int32_t scale = maker(search, add, 1, StepOp::SigmoidScale);
  const int32_t last = scale < 0 ? add : scale;
  const int32_t down = product(search, last, scale < 0 ? 1 : 0);
  const int32_t glu = down < 0 ? -1 : maker(search, down, 0, StepOp::Glu);
  if (glu < 0) return;
  const int32_t gate = product(search, glu, 0), up = product(search, glu, 1);
  const int32_t score = scale < 0 ? -1 : product(search, scale, 1);
  if (gate < 0 || up < 0 || gate == up || (scale >= 0 && score < 0)) return;

  const int32_t x = search.in(experts->gate_up, 0);
  GroupSearch::Steps steps = experts->all();
  steps.insert(steps.end(), {gate, up, glu, down, add});
  std::vector<int32_t> between = experts->between(search);
  between.push_back(search.out(glu));
  if (score >= 0) {
    steps.insert(steps.end(), {score, scale});
    between.push_back(search.out(score));
  }
  for (int32_t i : {gate, up, score}) {
    if (i < 0) continue;
    if (search.in(i, 0) != x || !search.only(search.out(i), steps)) return;
  }
  for (int32_t i : {glu, down, last}) {
    if (i != add && !search.only(search.out(i), steps)) return;
  }
  add_two_launches(search, FusedOp::SharedExperts, steps, experts->read(search), between,
                   search.out(add));
}

void describe_shared_experts(kernels::GpuForm& form, const GroupMembers& steps) {
  describe_experts(form, steps);
  const SharedSteps shared(steps);
  for (const Step* step : {shared.gate, shared.up, shared.down}) {
    form.weights.push_back(steps.weight(*step));
    form.bias |= steps.has_weight(*step, 1);
  }
  if (shared.score) {
    form.weights.push_back(steps.weight(*shared.score));
    form.bias |= steps.has_weight(*shared.score, 1);
  }
  const auto& experts = steps.attrs<ExpertsAttrs>(StepOp::ExpertsGateUp);
  const auto& glu = std::get<GluAttrs>(shared.glu->attrs);
  form.alike = experts.activation == glu.activation && experts.limit == glu.limit &&
               steps.aligned(shared.glu->outputs[0], 4) &&
               shared.gate->inputs[0] == steps.of(StepOp::ExpertsGateUp).inputs[0];
  for (int i : {2, 3}) form.bias |= steps.has_weight(steps.of(StepOp::ExpertsGateUp), i);
  form.bias |= steps.has_weight(steps.of(StepOp::ExpertsDown), 1);
}

}  // namespace ktx::program
