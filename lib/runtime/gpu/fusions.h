// Fusion groups: which steps of a plan a GPU may compute together. With one token per pass a layer
// is bound by the starts and ends of its kernels, so fewer kernels are faster; with many tokens
// other arithmetic may be faster (expanded MLA, cuda_latent.h).
//
//   for (const Fusion& fusion : find_fusions(plan, part.first_step, part.step_count)) ...
//   // Attention: steps 5, 6, 7, 8 (rope, rope, kv_store, attention)
//
// A group is returned only if running it at the place of its last step is equivalent to running its
// steps in order:
//   (1) an intermediate that the fused kernel does not store has no other reader (the last hidden
//       state may be requested by the caller, so it is stored);
//   (2) no step in between reads or writes one of the group's buffers;
//   (3) the group never writes a buffer that it also reads, except the residual, or when all reads
//       come first (Latent).
// A plan does not contain the groups. A GPU chooses them by the number of tokens of the pass
// (PassSize, Gpu::make_fused); the steps of the other groups run one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/plan/plan_reader.h"

namespace ktx::runtime {

enum class FusionKind {
#define KTX_FUSION(kind, name, sentence) kind,
#include "lib/runtime/gpu/fusions.def"
#undef KTX_FUSION
};

struct Fusion {
  FusionKind kind;
  std::vector<uint32_t> steps;  // records of the plan, rising
};

const char* name(FusionKind kind);

// Of the steps [first, first + count), which one device does in a row. No step is in two.
// Values of one row per wanted token (RowKind::Output) are all written.
std::vector<Fusion> find_fusions(const plan::PlanView& plan, uint32_t first, uint32_t count);

}  // namespace ktx::runtime
