#include "lib/program/forwards_in_flight.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "lib/target/host_device.h"

namespace ktx::program {
namespace {

// Whether the first host waits for another one, and needs nothing then of what it has left in its
// activations before.
bool keeps_nothing(const Program& program) {
  bool waited = false;
  std::vector<bool> before(
      program.values.size());  // values that its steps use before the first wait
  const auto use = [&](const std::vector<View>& operands) {
    return std::ranges::all_of(operands, [&](const View& operand) {
      if (operand.value == kAbsent) return true;
      if (waited) return !before[operand.value];
      before[operand.value] = true;
      return true;
    });
  };
  for (const Part& part : program.parts) {
    const bool network = part.kind == Part::Kind::Network;
    const bool has_outputs = target::is_first_host(part.device);
    const bool has_inputs = network ? target::is_first_host(part.from) : has_outputs;
    if (!has_inputs && !has_outputs) continue;
    waited = waited || (network && has_outputs);
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      const Step& step = program.steps[i];
      if (waited && !network && step.layer >= 0) return false;
      if (has_inputs && !use(step.inputs)) return false;
      if (has_outputs && !use(step.outputs)) return false;
    }
  }
  if (!waited || (program.logits() != kAbsent && before[program.logits()])) return false;
  // The hidden states that embeddings are made of are read after the pass, as the logits are.
  const size_t head = program.head();
  if (head == program.steps.size()) return true;
  const int32_t hidden = program.input(head, 0);
  return target::is_first_host(program.steps[head].device) &&
         (hidden == kAbsent || !before[hidden]);
}

}  // namespace

int64_t forwards_in_flight(const Program& program) {
  const bool divided = std::ranges::any_of(
      program.steps, [](const Step& step) { return step.op == StepOp::SumExperts; });
  if (divided || !keeps_nothing(program)) return 1;
  std::set<std::string_view> hosts;
  for (const Step& step : program.steps) hosts.insert(target::host_of(step.device));
  return static_cast<int64_t>(hosts.size());
}

}  // namespace ktx::program
