// Reads all weights of a plan and compares them with their hashes: of every chunk
// (which covers the padding too) and of every blob.
#pragma once

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// After verify_records(). Of a host's part (host_part.h) those that it has. threads 0: all cores.
// Names the first weight that differs.
Status verify_weights(const PlanView& plan, int threads);

}  // namespace ktx::plan
