// In files of KTransformers a Linear without a rule stays dense.
#pragma once

#include "lib/passes/pass.h"

namespace ktx::passes {

void report_linears_without_rule(const CompileState& state);

}  // namespace ktx::passes
