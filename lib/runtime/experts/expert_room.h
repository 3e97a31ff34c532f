// How many experts of the CPU a run keeps in main memory (expert_cache.h).
//
//   available 24.0 GiB   other weights 2.1, activations 0.4, keys and values 1.0, left alone 1.5
//                        -> 19.0 GiB: 5,120 of 6,144 experts
//
// All are mapped where everything fits. Otherwise they get what is left of the available memory,
// which a cgroup's limit counts for (target::available_memory()), or what
// EngineOptions::expert_memory_bytes says. Prompts then come in longer chunks, as each of them
// reads nearly all experts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/engine/fit.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Whether the GPUs of a run, if it has any, have the memory for these options.
using FitsGpus = std::function<Result<bool>(const EngineOptions& options)>;

// Sets Sizes::expert_slots, and then memory, chunk and a note. Fails where the requested memory
// does not hold one layer. `available`: none: it is not known.
Status choose_expert_slots(const plan::PlanView& plan, const EngineOptions& options,
                           std::optional<uint64_t> available, const FitsGpus& fits_gpus,
                           Sizes& sizes);

}  // namespace ktx::runtime
