#include "lib/passes/cost/forwards_over_hosts.h"

#include <algorithm>

#include "lib/program/forwards_in_flight.h"
#include "lib/program/program.h"

namespace ktx::passes {

int64_t chunks_in_flight(const program::Program& program) {
  const bool states = std::ranges::any_of(
      program.steps, [](const program::Step& step) { return kept_by(step.attrs).state >= 0; });
  return states ? 1 : program::forwards_in_flight(program);
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
