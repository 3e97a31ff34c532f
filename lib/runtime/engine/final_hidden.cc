#include "lib/runtime/engine/final_hidden.h"

#include <fmt/format.h>

namespace ktx::runtime {
namespace {

using plan::PlanView;
using plan::StepRecord;

// The last step that writes `value`; the number of steps where there is none.
size_t last_writer(const PlanView& plan, uint32_t value) {
  for (size_t i = plan.steps.size(); i-- > 0;) {
    for (const plan::OperandRecord& out : plan.outputs(plan.steps[i])) {
      if (out.value == value) return i;
    }
  }
  return plan.steps.size();
}

bool is_op(const StepRecord& step, StepOp op) {
  return step.op == static_cast<uint32_t>(op);
}

}  // namespace

Result<FinalHidden> find_final_hidden(const PlanView& plan) {
  const Error none{
      "the plan keeps no hidden states that embeddings can be made of; compile it again"};
  size_t head = last_writer(plan, plan.facts.logits_value);
  while (head < plan.steps.size() && is_op(plan.steps[head], StepOp::Transfer)) {
    head = last_writer(plan, plan.inputs(plan.steps[head])[0].value);
  }
  if (head == plan.steps.size() || !is_op(plan.steps[head], StepOp::Matmul)) return none;
  const StepRecord& step = plan.steps[head];
  const plan::OperandRecord& input = plan.inputs(step)[0];
  const plan::ValueRecord& value = plan.values[input.value];
  if (value.type != static_cast<uint8_t>(ValueType::F32) ||
      value.rows != static_cast<uint8_t>(RowKind::Output) || value.rows_per_row != 1 ||
      value.width != plan.facts.hidden_size || input.offset != 0 || input.width != value.width) {
    return none;
  }
  const std::string_view device = plan.string(step.device);
  for (size_t i = head; i < plan.steps.size(); ++i) {
    if (plan.string(plan.steps[i].device) != device) continue;
    for (const plan::OperandRecord& out : plan.outputs(plan.steps[i])) {
      if (plan.values[out.value].buffer == value.buffer) return none;
    }
  }
  return FinalHidden{input.value, device};
}

std::vector<FinalHidden> find_kept_hidden(const PlanView& plan) {
  std::vector<FinalHidden> kept;
  for (const uint32_t value : plan.facts.hidden_values) {
    kept.push_back({value, plan.string(plan.steps[last_writer(plan, value)].device)});
  }
  return kept;
}

}  // namespace ktx::runtime
