#include "lib/passes/cost/memory_formulas.h"

#include <algorithm>
#include <utility>

#include "lib/passes/cost/launched_steps.h"

namespace ktx::passes {

namespace {

// The steps of the model with routed experts on one device and all else on another.
Result<program::Program> planned_steps(const PricedModel& model, const std::string& experts,
                                       const std::string& others) {
  ir::ModuleGraph modules = model.modules;
  for (ir::Module& module : modules.modules) {
    module.decision = {};
    module.decision.device = module.role == ir::Role::Experts ? experts : others;
  }
  return steps_after(model, std::move(modules),
                     {"lower-to-steps", "insert-transfers", "fold-residuals",
                      "quantize-activations", "plan-memory"});
}

}  // namespace

Result<MemoryFormulas> MemoryFormulas::make(const PricedModel& model) {
  // The formulas hardly depend on the placement: take them from the steps of the same model on one
  // device, and with its experts on the CPU beside a GPU.
  const program::Program alone = KTX_TRY(planned_steps(model, "cpu", "cpu"));
  MemoryFormulas formulas;
  formulas.all = program::buffers_on(alone, "cpu");
  formulas.kv_slots = alone.kv_slots;
  for (const program::Step& step : alone.steps) {
    const KeptUse use = kept_by(step.attrs);
    // Those of a drafter are the CPU's.
    if (step.op == StepOp::GivenRows) formulas.given_floats += step.outputs[0].width;
    if (step.op == StepOp::GivenHidden && model.modules.facts.encoder) {
      formulas.given_floats = step.outputs[0].width;
    }
    if (use.state >= 0) formulas.states.push_back({use.state, step.layer, use.state_floats});
  }
  const bool has_experts = std::ranges::any_of(
      model.modules.modules, [](const auto& module) { return module.role == ir::Role::Experts; });
  if (!has_experts) return formulas;
  const program::Program apart = KTX_TRY(planned_steps(model, "cpu", "cuda:0"));
  formulas.without_experts = program::buffers_on(apart, "cuda:0");
  formulas.of_experts = program::buffers_on(apart, "cpu");
  return formulas;
}

Result<uint64_t> scratch_bytes(const std::vector<program::Buffer>& buffers,
                               const plan::RunShape& shape) {
  return KTX_TRY(plan::lay_out_arena(buffers, shape.step_tokens, shape.step_outputs)).total_bytes;
}

Result<uint64_t> MemoryFormulas::scratch_of_experts(const plan::RunShape& shape) const {
  if (without_experts.empty()) return uint64_t{0};
  const uint64_t with = KTX_TRY(scratch_bytes(all, shape));
  return with - std::min(with, KTX_TRY(scratch_bytes(without_experts, shape)));
}

}  // namespace ktx::passes
