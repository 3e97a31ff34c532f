#include "lib/runtime/engine/final_hidden.h"

#include "lib/program/program.h"

namespace ktx::runtime {

Result<FinalHidden> find_final_hidden(const plan::PlanView& plan) {
  const Error none{
      "the plan keeps no hidden states that embeddings can be made of; compile it again"};
  const size_t head = plan.program->head();
  if (head == plan.steps.size()) return none;
  const plan::StepRecord& step = plan.steps[head];
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

std::vector<FinalHidden> find_kept_hidden(const plan::PlanView& plan) {
  std::vector<FinalHidden> kept;
  for (const uint32_t value : plan.facts.hidden_values) {
    const size_t step = plan.program->last_writer(static_cast<int32_t>(value));
    kept.push_back({value, plan.string(plan.steps[step].device)});
  }
  return kept;
}

}  // namespace ktx::runtime
