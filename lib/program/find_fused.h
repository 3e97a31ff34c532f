// Fusion groups: which steps a GPU may compute together. With one token per pass a layer is
// bound by the starts and ends of its kernels, so fewer kernels are faster; with many tokens
// other arithmetic may be faster (expanded MLA, kernels/cuda/mla/cuda_latent.h).
//
//   for (const FusedGroup& group : find_fused(program, uses, part.first_step, part.step_count)) ...
//   // attention: steps 5, 6, 7, 8 (rope, rope, kv_store, attention)
//
// A group is found only if running it at the place of its last step is equivalent to running its
// steps in order:
//   (1) an intermediate that the fused kernel does not store has no other reader (the last hidden
//       state may be requested by the caller, so it is stored);
//   (2) no step in between reads or writes one of the group's buffers;
//   (3) the group never writes a buffer that it also reads, except the residual, or when all reads
//       come first (Latent).
#pragma once

#include <string>
#include <vector>

#include "lib/program/program.h"

namespace ktx::program {

// The steps that read and that write each value, rising.
struct Uses {
  explicit Uses(const Program& program);
  std::vector<std::vector<int32_t>> readers, writers;
};

// The groups of the steps [first, first + count), which one device does in a row. Two groups are
// disjoint, or one is around the other and of the third turn (fused_ops.def).
// Values of one row per wanted token (RowKind::Output) are all written.
std::vector<FusedGroup> find_fused(const Program& program, const Uses& uses, int32_t first,
                                   int32_t count);

// Whether these steps of [first, first + count) are such a group, whatever other groups there
// are: the rule by which a plan's launches are checked. Steps rise and lie in the range.
bool is_fused(const Program& program, const Uses& uses, int32_t first, int32_t count,
              const FusedGroup& group);

}  // namespace ktx::program
