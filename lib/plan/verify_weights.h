// Reads all weights of a plan and compares them with their hashes: XXH3 of every chunk
// (which covers the padding too) and of every blob, and SHA-256 where the plan has it.
#pragma once

#include <atomic>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// After verify_records(). For a host's part (host_part.h), its own weights. threads 0: all cores.
// Names the first weight that differs. Once `stop` is true it ends without having found anything.
Status verify_weights(const PlanView& plan, int threads, const std::atomic<bool>* stop = nullptr);

}  // namespace ktx::plan
