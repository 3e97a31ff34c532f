// The joint throughput of forward passes that may be in flight over several hosts
// (lib/program/forwards_in_flight.h).
#pragma once

#include <cstdint>

#include "lib/passes/cost/forward_time.h"
#include "lib/program/program.h"

namespace ktx::passes {

// How many chunks of one prompt may be: states that go from token to token keep them in order.
// `program` has its parts.
int64_t chunks_in_flight(const program::Program& program);

// Seconds between the ends of two passes, of so many in flight.
double seconds_of_each(const ForwardTime& pass, int64_t in_flight);
// Of `passes` passes one after the other, so many in flight.
double seconds_of_all(const ForwardTime& pass, double passes, int64_t in_flight);

}  // namespace ktx::passes
