#include "lib/runtime/gpu/step_bytes.h"

#include <algorithm>

#include "lib/ops/step_attrs.h"

namespace ktx::runtime {

int64_t step_weight_bytes(const plan::PlanView& plan, const plan::StepRecord& step,
                          int64_t tokens) {
  const auto op = static_cast<StepOp>(step.op);
  int64_t sum = 0;
  // One sequence's states are read and written.
  sum += 8 * state_floats_of(attrs_from_bytes(op, plan.attrs_bytes(step)));
  for (uint32_t blob : plan.weights(step)) {
    if (blob == plan::kNone) continue;
    const plan::BlobRecord& record = plan.blobs[blob];
    const auto bytes = static_cast<int64_t>(record.size);
    if (op == StepOp::Embed || op == StepOp::EmbedRow) {
      sum += bytes / std::max<int64_t>(record.rows, 1) * tokens;
    } else if (op == StepOp::ExpertsGateUp || op == StepOp::ExpertsDown) {
      const int64_t top_k = plan.attrs_of<ExpertsAttrs>(step).top_k;
      sum += bytes / std::max<int64_t>(record.matrices, 1) *
             std::min<int64_t>(record.matrices, tokens * top_k);
    } else {
      sum += bytes;
    }
  }
  return sum;
}

}  // namespace ktx::runtime
