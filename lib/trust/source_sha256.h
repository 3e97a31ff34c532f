// SHA-256 of the GGUF that a plan was made from, computed from the plan: packing is a bijection, so
// that it is the digest that the GGUF's publisher states.
#pragma once

#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::trust {

// 64 hexadecimal digits for each shard. Reads all weights. Fails where the plan does not hold its
// source (rounded weights, merged adapters, --drop-unused, one host's part). Bytes between tensors
// are taken for zero, as converters write them.
Result<std::vector<std::string>> source_sha256(const plan::PlanView& plan);

}  // namespace ktx::trust
