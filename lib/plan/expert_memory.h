// How much memory the routed experts of the CPU take, whole and as a cache with a bounded number of
// slots (lib/runtime/experts/expert_cache.h).
//
//   layer 0   128 experts   gate 864 KiB, up 864 KiB, down 1260 KiB each
//   layer 1   ...
//
// A slot has room for one expert of any layer: for each of its slices the bytes in the file,
// rounded out to whole blocks of kDirectBlock, which a read past the page cache begins and ends at.
// So a plan needs no alignment of its own for that; it costs at most two blocks a slice (0.5 % of
// Qwen3-30B-A3B's).
#pragma once

#include <cstdint>
#include <vector>

#include "lib/program/program.h"

namespace ktx::plan {

inline constexpr uint64_t kDirectBlock = 4096;

// Where experts are on disk, prompts come in the longest of these chunks whose activations take an
// eighth of the experts' room at most, as each chunk reads nearly all experts.
inline constexpr int64_t kDiskChunks[] = {4096, 2048, 1024};

// One layer's routed experts that are the CPU's.
struct ExpertLayer {
  int32_t layer = 0;
  size_t step = 0;  // the first experts_gate_up over them
  int32_t experts = 0;
  int32_t top_k = 0;
  std::vector<program::BlobId> gate_up;  // one where gate and up are one
  program::BlobId down = program::kAbsent;

  std::vector<program::BlobId> blobs() const;
};

// In the order of the steps, each blob in one of them. Safe for any program that was verified.
std::vector<ExpertLayer> cpu_expert_layers(const program::Program& program);

// Bytes of one expert in a blob.
uint64_t expert_bytes(const program::Program& program, program::BlobId blob);
// The room that a slice takes in a slot.
constexpr uint64_t slice_room(uint64_t bytes) {
  return (bytes + kDirectBlock - 1) / kDirectBlock * kDirectBlock + kDirectBlock;
}

struct ExpertMemory {
  int64_t experts = 0;      // of all layers
  uint64_t bytes = 0;       // theirs, in the file
  uint64_t slot_bytes = 0;  // 0: the CPU has none
  int64_t least_slots = 0;  // all experts of a layer, which a long prompt may choose

  uint64_t least_bytes() const { return static_cast<uint64_t>(least_slots) * slot_bytes; }
  uint64_t most_bytes() const { return static_cast<uint64_t>(experts) * slot_bytes; }
};
ExpertMemory expert_memory(const program::Program& program);

}  // namespace ktx::plan
