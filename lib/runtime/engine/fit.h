// Chooses context, batch and cache of a run, and checks that they fit the memory.
#pragma once

#include <string>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/support/result.h"

namespace ktx::runtime {

inline constexpr int64_t kMaxCtx = int64_t{1} << 24;  // positions are exact as F32 up to here

struct Sizes {
  plan::RunShape shape;
  Precision precision = Precision::Fast;
  plan::KvBlocks kv_blocks;  // after the budget
  plan::MemoryEstimate memory;
  // For the CPU's routed experts where not all are in memory (experts/expert_room.h): `memory`
  // counts these slots instead of the weights.
  int64_t expert_slots = 0;
  uint64_t expert_bytes = 0;
  uint64_t lora_bytes = 0;  // of adapters, in memory of their own
  std::vector<std::string> notes;
};

// The sizes that options and the plan's defaults request. Fails on numbers out of
// range.
Result<Sizes> choose_sizes(const plan::PlanView& plan, const EngineOptions& options);

// Those of a model's run for its tower (ImageReader), whose context, batch and cache are its own.
EngineOptions tower_options(EngineOptions options);

// The same of a plan that may have GPUs: chunks that keep them busy, room for the padding of
// graphs, and of the memory the host's part.
Result<Sizes> sizes_of_run(const plan::PlanView& plan, const EngineOptions& options);

// The blocks of the cache and its memory, from the shape. Fails when the budget is too small.
Status size_cache(const plan::PlanView& plan, const EngineOptions& options, Sizes& sizes);

// What a run may take of a machine's memory: the cache is touched late, when others may have grown.
uint64_t most_of(uint64_t available);

// Fails with a table when activations and cache do not fit `available_bytes`. The
// weights are mapped: when they do not fit beside, a note says that they will be
// read from the file again and again.
Status check_fit(uint64_t available_bytes, uint64_t memory_bytes, Sizes& sizes);

}  // namespace ktx::runtime
