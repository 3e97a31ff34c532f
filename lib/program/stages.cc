#include "lib/program/stages.h"

#include <span>
#include <utility>

#include "lib/program/parts.h"
#include "lib/target/host_device.h"

namespace ktx::program {
namespace {

int64_t width(const std::vector<View>& operands) {
  return operands.empty() ? 0 : operands[0].width;
}

bool on_cpu(const Step& step) {
  return target::is_cpu(step.device) && step.op != StepOp::Transfer;
}

void add_shifted(const std::vector<Stage>& stages, size_t first, std::vector<Stage>& out) {
  const auto shift = static_cast<int32_t>(first);
  for (Stage stage : stages) {
    for (int32_t& index : stage.prelude) index += shift;
    for (auto& part : stage.parts) {
      for (int32_t& index : part) index += shift;
    }
    out.push_back(std::move(stage));
  }
}

// Deferred experts need nothing of the layer that they stand in. They stay there: steps that move
// further than find_stages looks back would be in other stages when these are found again.
bool begins_deferred(const Step& step) {
  const auto* group = std::get_if<GroupExpertsAttrs>(&step.attrs);
  return group && group->first_rank > 0;
}

}  // namespace

StepAccess slot_access(int32_t slot, bool write) {
  const int32_t number = kAbsent - 1 - slot;  // of no value and no buffer
  return {number, number, 0, 1, write, false};
}

StepFacts facts_of(const Program& program, const Step& step, Memory memory) {
  StepFacts facts;
  facts.op = step.op;
  const auto add = [&](const View& operand, bool write, bool by_row) {
    if (operand.value == kAbsent) return;
    const int32_t buffer = program.values[operand.value].buffer;
    facts.accesses.push_back({operand.value, memory == Memory::OfBuffers ? buffer : operand.value,
                              operand.offset, operand.offset + operand.width, write, by_row});
  };
  for (const View& in : step.inputs) add(in, false, reads_by_row(step.op));
  for (const View& out : step.outputs) add(out, true, is_row_wise(step.op));
  facts.inner_rows = inner_rows(step.op, step.attrs, width(step.inputs), width(step.outputs));
  const int32_t stored = stored_slot(step.op, step.attrs);
  for (const int32_t slot : kept_by(step.attrs).slots) {
    if (slot >= 0) facts.accesses.push_back(slot_access(slot, slot == stored));
  }
  facts.rows = program.rows(step);
  return facts;
}

std::vector<Stage> stages_of(const Program& program) {
  std::vector<StepFacts> all;
  for (const Step& step : program.steps) {
    all.push_back(facts_of(program, step, Memory::OfEachValue));
  }
  std::vector<Stage> out;
  const CpuWaits waits = find_cpu_waits(program);
  for (size_t begin = 0; begin < all.size();) {
    const Step& first = program.steps[begin];
    size_t end = begin + 1;
    while (on_cpu(first) && end < all.size() && on_cpu(program.steps[end]) &&
           program.steps[end].device == first.device && !waits.later(end) &&
           !begins_deferred(program.steps[end])) {
      ++end;
    }
    add_shifted(find_stages(std::span(all).subspan(begin, end - begin)), begin, out);
    begin = end;
  }
  return out;
}

}  // namespace ktx::program
