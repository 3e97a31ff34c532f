// What streamed experts (lib/launches/streams.h) take of a GPU's memory.
//
//   two slots for the panels of a layer, one for its tiles    (fixed)
//   vectors of the layers                                     (fixed)
//   a place for each buffer of the CPU that they use          (by tokens, as on the CPU)
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lib/launches/streams.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"

namespace ktx::plan {

inline constexpr uint64_t kStreamAlignment = 256;  // of weights in a slot

struct StreamMemory {
  int64_t least_tokens = 0;  // of a pass that streams; 0: none does
  uint64_t panel_bytes = 0;  // of one of the two slots
  uint64_t tile_bytes = 0;
  uint64_t vector_bytes = 0;
  ArenaLayout arena;  // by buffer of the plan; those that are not used take no bytes
  uint64_t total() const { return 2 * panel_bytes + tile_bytes + vector_bytes + arena.total_bytes; }
};

// Bytes of a blob of products as tiles.
uint64_t tile_bytes(const BlobRecord& blob);

// The streams of a plan, by its launches; the plan has passed its verifiers.
std::vector<launches::Stream> streams(const PlanView& plan);

// Nothing where no pass of `shape` has the tokens.
Result<StreamMemory> stream_memory(const PlanView& plan, std::span<const launches::Stream> streams,
                                   std::string_view device, const RunShape& shape);

}  // namespace ktx::plan
