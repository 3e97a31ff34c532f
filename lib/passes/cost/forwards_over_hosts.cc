#include "lib/passes/cost/forwards_over_hosts.h"

#include <algorithm>

#include "lib/launches/forwards_in_flight.h"
#include "lib/steps/graph_step_list.h"

namespace ktx::passes {

int64_t forwards_in_flight(const steps::StepGraph& graph) {
  const bool alone = std::ranges::none_of(graph.parts, [](const launches::Part& part) {
    return part.kind == launches::Part::Kind::Network;
  });
  return alone ? 1 : launches::forwards_in_flight(steps::step_list(graph), graph.parts);
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
