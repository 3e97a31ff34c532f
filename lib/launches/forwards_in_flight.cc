#include "lib/launches/forwards_in_flight.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "lib/target/host_device.h"

namespace ktx::launches {
namespace {

// Whether the first host waits for another one, and needs nothing then of what it has left in its
// activations before.
bool keeps_nothing(const StepList& list, std::span<const Part> parts) {
  bool waited = false;
  std::vector<bool> before(list.values.size());  // values that its steps use before the first wait
  const auto use = [&](const std::vector<ListedOperand>& operands) {
    return std::ranges::all_of(operands, [&](const ListedOperand& operand) {
      if (operand.value == kNone) return true;
      if (waited) return !before[operand.value];
      before[operand.value] = true;
      return true;
    });
  };
  for (const Part& part : parts) {
    const bool network = part.kind == Part::Kind::Network;
    const bool has_outputs = target::is_first_host(part.device);
    const bool has_inputs = network ? target::is_first_host(part.from) : has_outputs;
    if (!has_inputs && !has_outputs) continue;
    waited = waited || (network && has_outputs);
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      const ListedStep& step = list.steps[i];
      if (waited && !network && step.layer >= 0) return false;
      if (has_inputs && !use(step.inputs)) return false;
      if (has_outputs && !use(step.outputs)) return false;
    }
  }
  if (!waited || (list.logits != kNone && before[list.logits])) return false;
  // The hidden states that embeddings are made of are read after the pass, as the logits are.
  const size_t head = list.head();
  if (head == list.steps.size()) return true;
  const int32_t hidden = list.input(head, 0);
  return target::is_first_host(list.steps[head].device) && (hidden == kNone || !before[hidden]);
}

}  // namespace

int64_t forwards_in_flight(const StepList& list, std::span<const Part> parts) {
  const bool divided = std::ranges::any_of(
      list.steps, [](const ListedStep& step) { return step.op == StepOp::SumExperts; });
  if (divided || !keeps_nothing(list, parts)) return 1;
  std::set<std::string_view> hosts;
  for (const ListedStep& step : list.steps) hosts.insert(target::host_of(step.device));
  return static_cast<int64_t>(hosts.size());
}

}  // namespace ktx::launches
