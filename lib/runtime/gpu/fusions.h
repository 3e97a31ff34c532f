// Which steps of a plan a GPU may do together. When a pass has one token a layer is bound by the
// starts and ends of its kernels, so fewer of them are faster; when it has many, other arithmetic
// may be (absorbed MLA, cuda_latent.h).
//
//   for (const Fusion& fusion : find_fusions(plan, part.first_step, part.step_count)) ...
//   // Attention: steps 5, 6, 7, 8 (rope, rope, kv_store, attention)
//
// A fusion stands for the composition of its steps and runs at the place of the last of them.
// It is given only where that is the same: what it need not write nobody else reads (the last
// hidden state may be asked for, so it is written), no step between its own uses a buffer that
// it reads or writes, and it writes into no buffer that it reads but a residual's, unless it has
// read all before it writes (Latent). Plans know nothing of it. Which fusions a GPU takes depends
// on the tokens of the pass (PassSize, Gpu::make_fused): one, few or many; the steps of others run
// by themselves.
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
