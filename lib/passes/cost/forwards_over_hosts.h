// What the passes give together that may be in flight over several hosts
// (lib/launches/forwards_in_flight.h).
#pragma once

#include <cstdint>

#include "lib/passes/cost/forward_time.h"
#include "lib/steps/step_graph.h"

namespace ktx::passes {

// `graph` has its parts.
int64_t forwards_in_flight(const steps::StepGraph& graph);
// The same of chunks of one prompt: states that go from token to token keep them in order.
int64_t chunks_in_flight(const steps::StepGraph& graph);

// Seconds between the ends of two passes, of so many in flight.
double seconds_of_each(const ForwardTime& pass, int64_t in_flight);
// Of `passes` passes one after the other, so many in flight.
double seconds_of_all(const ForwardTime& pass, double passes, int64_t in_flight);

}  // namespace ktx::passes
