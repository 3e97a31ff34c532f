// The step graph that a placed model would get, with its launches, for reports: the state itself
// stays as it is.
#pragma once

#include "lib/passes/pass.h"

namespace ktx::passes {

// `state` is Placed. Fails where the model cannot be lowered with these devices.
Result<steps::StepGraph> launched_steps(const CompileState& state);

}  // namespace ktx::passes
