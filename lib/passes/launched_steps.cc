#include "lib/passes/launched_steps.h"

namespace ktx::passes {

Result<steps::StepGraph> launched_steps(const CompileState& state) {
  CompileState copy = state;
  DiagSink unseen;
  copy.diags = &unseen;
  PassOptions options;
  options.only.emplace();
  options.verify_each = false;
  for (const Pass& pass : all_passes()) {
    if (pass.gives >= Fact::Lowered) options.only->emplace_back(pass.name);
  }
  KTX_TRY(run_passes(copy, options));
  return std::move(copy.steps);
}

}  // namespace ktx::passes
