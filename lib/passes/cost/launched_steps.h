// The program that a placement would get, for prices and reports.
#pragma once

#include <initializer_list>
#include <string_view>

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// The program of modules whose devices are decided after these passes of passes.def, in its order.
// Facts are not checked between them, as an estimate leaves passes out.
Result<program::Program> steps_after(const PricedModel& model, ir::ModuleGraph modules,
                                     std::initializer_list<std::string_view> passes);

// With its launches. Fails where the model cannot be lowered with these devices.
Result<program::Program> launched_steps(const PricedModel& model, const Placement& placement);
// For the placement that the state's modules have.
Result<program::Program> launched_steps(const CompileState& state);

}  // namespace ktx::passes
