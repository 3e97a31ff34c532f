// Checks all steps of a plan: the ranges of their records, then what they say by the rules that the
// compiler's verifier applies as well (lib/program/step_verifier.h), and what the plan's facts say
// of them. Kernels and runtime rely on these rules and check nothing again.
#pragma once

#include "lib/plan/plan_reader.h"
#include "lib/program/program.h"
#include "lib/support/result.h"

namespace ktx::plan {

// After verify_records(). Messages name the step: "step 12 (matmul,
// model.layers.0.mlp): ...", but no file.
Status verify_steps(const PlanView& plan);

// The two halves of it, before and after the records are converted.
Status check_step_fields(const PlanView& plan);
Status check_steps(const PlanView& plan, const program::Program& program);

}  // namespace ktx::plan
