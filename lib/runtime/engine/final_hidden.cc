#include "lib/runtime/engine/final_hidden.h"

#include "lib/program/program.h"

namespace ktx::runtime {

Result<FinalHidden> find_final_hidden(const plan::PlanView& plan) {
  const Error none{
      "the plan keeps no hidden states that embeddings can be made of; compile it again"};
  const program::Program& program = *plan.program;
  const size_t head = program.head();
  if (head == program.steps.size()) return none;
  const program::Step& step = program.steps[head];
  const program::View& input = step.inputs[0];
  const program::Value& value = program.values[input.value];
  if (value.type != ValueType::F32 || value.rows != RowKind::Output || value.rows_per_row != 1 ||
      value.width != plan.facts.hidden_size || input != program.whole(input.value)) {
    return none;
  }
  for (size_t i = head; i < program.steps.size(); ++i) {
    if (program.steps[i].device != step.device) continue;
    for (const program::View& out : program.steps[i].outputs) {
      if (program.values[out.value].buffer == value.buffer) return none;
    }
  }
  return FinalHidden{static_cast<uint32_t>(input.value), step.device};
}

std::vector<FinalHidden> find_kept_hidden(const plan::PlanView& plan) {
  std::vector<FinalHidden> kept;
  for (const uint32_t value : plan.facts.hidden_values) {
    const size_t step = plan.program->last_writer(static_cast<int32_t>(value));
    kept.push_back({value, plan.program->steps[step].device});
  }
  return kept;
}

}  // namespace ktx::runtime
