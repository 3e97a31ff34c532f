#include "lib/plan/given_rows.h"

#include "lib/target/host_device.h"

namespace ktx::plan {

int64_t given_floats_on_gpus(const PlanView& plan) {
  for (const program::Step& step : plan.program->steps) {
    if (target::is_cpu(step.device)) continue;
    if (step.op == StepOp::GivenRows) return plan.facts.image.row_width();
    if (step.op == StepOp::GivenHidden) return plan.facts.given_width;
  }
  return 0;
}

}  // namespace ktx::plan
