#include "lib/passes/cost/launched_steps.h"

#include <algorithm>
#include <utility>

namespace ktx::passes {

Result<program::Program> steps_after(const PricedModel& model, ir::ModuleGraph modules,
                                     std::initializer_list<std::string_view> passes) {
  DiagSink unseen;
  CompileState lowered;
  lowered.modules = std::move(modules);
  lowered.target = model.target;
  lowered.diags = &unseen;
  lowered.fact = Fact::Placed;
  size_t found = 0;
  for (const Pass& pass : all_passes()) {
    if (std::ranges::count(passes, pass.name) == 0) continue;
    ++found;
    KTX_TRY(pass.run(lowered));
    lowered.fact = pass.gives;
  }
  KTX_ASSERT(found == passes.size());
  return std::move(lowered.program);
}

Result<program::Program> launched_steps(const PricedModel& model, const Placement& placement) {
  DiagSink unseen;
  CompileState lowered;
  lowered.modules = model.modules;
  write_placement(placement, lowered.modules);
  lowered.target = model.target;
  lowered.rules = model.rules;  // keep experts of some layers on the CPU
  lowered.prefer = model.prefer;
  lowered.prefer.stream_tokens = placement.streams.tokens;
  lowered.prefer.joint_tokens = placement.streams.joint;
  lowered.taps = model.taps;
  lowered.bf16_inputs = model.bf16_inputs;
  lowered.diags = &unseen;
  lowered.fact = Fact::Placed;
  PassOptions options;
  options.only.emplace();
  options.verify_each = false;
  for (const Pass& pass : all_passes()) {
    if (pass.gives >= Fact::Lowered) options.only->emplace_back(pass.name);
  }
  KTX_TRY(run_passes(lowered, options));
  return std::move(lowered.program);
}

Result<program::Program> launched_steps(const CompileState& state) {
  return launched_steps(PricedModel(state), placement_of(state));
}

}  // namespace ktx::passes
