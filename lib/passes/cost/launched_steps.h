// The program that a placement would get, with its launches, for prices and reports.
#pragma once

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// Fails where the model cannot be lowered with these devices.
Result<program::Program> launched_steps(const PricedModel& model, const Placement& placement);
// Of the placement that the state's modules have.
Result<program::Program> launched_steps(const CompileState& state);

}  // namespace ktx::passes
