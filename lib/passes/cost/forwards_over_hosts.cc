#include "lib/passes/cost/forwards_over_hosts.h"

#include <algorithm>
#include <set>
#include <string>

#include "lib/target/host_device.h"

namespace ktx::passes {

using launches::Part;

int64_t forwards_in_flight(const steps::StepGraph& graph) {
  // Where hosts share the experts of layers, each pass has all of them to its end.
  const bool divided = std::ranges::any_of(
      graph.steps, [](const steps::Step& step) { return step.op == StepOp::SumExperts; });
  if (divided) return 1;
  std::set<std::string> hosts;
  bool waited = false;
  std::set<steps::ValueId> before;  // values that the first host uses before it waits
  for (const Part& part : graph.parts) {
    const bool network = part.kind == Part::Kind::Network;
    if (!network && part.kind != Part::Kind::Cpu) return 1;
    if (!network) hosts.emplace(target::host_of(part.device));
    const bool receives = network && target::is_first_host(part.device);
    const bool sends = network && target::is_first_host(part.from);
    if (network ? !receives && !sends : !target::is_first_host(part.device)) continue;
    waited = waited || receives;
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      const steps::Step& step = graph.steps[static_cast<size_t>(i)];
      if (waited && !network && step.layer >= 0) return 1;
      for (const auto* views : {&step.inputs, &step.outputs}) {
        if (network && (views == &step.inputs) != sends) continue;
        for (const steps::View& view : *views) {
          if (view.value == steps::kAbsent) continue;
          if (!waited) before.insert(view.value);
          if (waited && before.contains(view.value)) return 1;
        }
      }
    }
  }
  return waited ? static_cast<int64_t>(hosts.size()) : 1;
}

int64_t chunks_in_flight(const steps::StepGraph& graph) {
  const bool states = std::ranges::any_of(
      graph.steps, [](const steps::Step& step) { return state_of(step.attrs) >= 0; });
  return states ? 1 : forwards_in_flight(graph);
}

double seconds_of_each(const ForwardTime& pass, int64_t in_flight) {
  if (in_flight < 2) return pass.seconds;
  return std::max(pass.busiest_seconds, pass.seconds / static_cast<double>(in_flight));
}

double seconds_of_all(const ForwardTime& pass, double passes, int64_t in_flight) {
  const double others = std::max(0.0, passes - 1) * seconds_of_each(pass, in_flight);
  return passes < 1 ? pass.seconds * passes : pass.seconds + others;
}

}  // namespace ktx::passes
