// Checks the operands, weights and attributes of all steps of a plan. Kernels and runtime rely on
// these rules and check nothing again.
//
// Besides shapes, three rules concern memory:
//   * a step reads only what an earlier step of the same run wrote, and what no
//     other value has overwritten since (values share buffers);
//   * an output does not overlap the step's inputs, unless the op may work in place and
//     the output is the input, element for element;
//   * expert numbers and their order reach the products only from a router and its
//     group_experts step with the same number of experts, so that kernels may index
//     with them.
//
// The rules of each op are in lib/ops/op_rules.cc, the same as for the step graph.
#pragma once

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// After verify_records(). Messages name the step: "step 12 (matmul,
// model.layers.0.mlp): ...", but no file.
Status verify_steps(const PlanView& plan);

}  // namespace ktx::plan
