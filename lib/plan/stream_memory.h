// How much GPU memory streamed experts (lib/program/streams.h) take.
//
//   two slots for panels on their way, a place for tiles      (fixed)
//   vectors of the layers                                     (fixed)
//   a place for each buffer of the CPU that they use          (by tokens, as on the CPU)
//
// A slot holds a piece: all experts of a layer, or less of them where the GPU has less room. The
// tiles are then those of one step at a time, gate and up, or down:
//
//   of a slot           of tiles                DeepSeek-V3, Q4_K
//   a layer             a layer                 3 x 6.3 GB
//   a matrix            the most of a step      2 x 2.1 + 4.2 GB
//   an eighth of it     the most of a step      2 x 0.3 + 4.2 GB
//
// The compiler chooses one (lib/passes/placement/stream_experts.h), and the plan says it
// (PlanFacts); when the plan is loaded with less memory than that takes, the next one that fits.
// The smaller a slot, the less is copied ahead while the GPU computes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/plan/stream_slots.h"
#include "lib/program/streams.h"

namespace ktx::plan {

inline constexpr uint64_t kStreamAlignment = 256;  // of weights in a slot
constexpr uint64_t stream_aligned(uint64_t bytes) {
  return (bytes + kStreamAlignment - 1) / kStreamAlignment * kStreamAlignment;
}

// Strips of one blob: of all experts one after the other.
struct StreamCopy {
  int32_t blob = 0;
  int64_t first_strip = 0, strips = 0;
  uint64_t begin = 0, bytes = 0;  // of the blob's panels
  uint64_t offset = 0;            // in the slot
  uint64_t tiles = 0;             // where they are tiles, behind the begin of all
};
// What is copied in one go, and becomes tiles before `step`.
struct StreamPiece {
  uint32_t step = 0;
  std::vector<StreamCopy> copies;
  uint64_t bytes() const;
};

struct StreamMemory {
  int64_t least_tokens = 0;         // of a pass that streams; 0: none does
  uint64_t panel_bytes = 0;         // of one of the two slots
  std::vector<StreamPiece> pieces;  // of a pass, in the order of their use
  std::vector<uint64_t> tiles;      // by blob: where its tiles begin
  uint64_t tile_bytes = 0;
  uint64_t vector_bytes = 0;
  ArenaLayout arena;  // by buffer of the plan; those that are not used take no bytes
  uint64_t total() const { return 2 * panel_bytes + tile_bytes + vector_bytes + arena.total_bytes; }
};

// Strips of 16 rows of a blob of products, of all its matrices.
int64_t strips_of(const program::Blob& blob);

// Nothing where no pass of `shape` has the tokens.
Result<StreamMemory> stream_memory(const program::Program& program,
                                   std::span<const program::Stream> streams,
                                   std::string_view device, const RunShape& shape,
                                   StreamSlots slots = StreamSlots::Layer);

}  // namespace ktx::plan
