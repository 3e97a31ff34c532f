// Turns the steps of a plan into executable ones: pointers from planned offsets, kernel
// functions from family names and this machine's instruction set.
//
// Errors name the step, its module and the versions: "step 12 (matmul of
// model.layers.0.self_attn.q_proj): no kernel family 'x'; the plan was made by ktx
// 2.1, this is 1.0".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/ops/step_stages.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::runtime {

class ExpertCounts;
class ExpertCache;
class ExpertGuests;
class LoraWeights;

struct BoundStep {
  std::unique_ptr<CpuStep> run;
  uint32_t number = 0;  // in the program
  StepOp op = StepOp::Embed;
  bool ahead =
      false;  // a part of that step that runs before it, and leaves its outputs as they are
};

// The steps of the whole plan, or of one part of it (BindOptions::first_step).
struct BoundPlan {
  std::vector<BoundStep> steps;  // those that this precision has, in order
  std::vector<Stage> stages;     // by index in steps
  int64_t scratch_bytes = 0;     // one thread's, for any step

  void add(BoundStep step);
};

// For sequences of up to `ctx` tokens: room for the parts of one token's rows, or of some tokens
// with a short past. One serves all steps of a plan on the CPU.
Result<AttentionPartials> make_partials(const program::Program& program, int64_t ctx);

struct BindOptions {
  std::byte* arena = nullptr;
  std::span<const uint64_t> buffer_offsets;
  Isa isa = Isa::Scalar;
  kernels::Precision precision = kernels::Precision::Fast;
  int threads = 1;
  int shares = 1;  // of the thread pool
  // Lets threads share a long row of attention; null: they do not. Must outlive the result.
  AttentionPartials* partials = nullptr;
  ExpertCounts* expert_counts = nullptr;  // of activations; must outlive the result; null: none
  ExpertCache* experts = nullptr;         // of routed experts; must outlive the result; null: none
  ExpertGuests* guests = nullptr;         // among them; must outlive the result; null: none
  const LoraWeights* lora = nullptr;      // adapters; must outlive the result; null: none
  CpuOpTable cpu_op = nullptr;            // null: those of cpu_ops.def
  // Steps [first_step, first_step + step_count) of the plan.
  uint32_t first_step = 0;
  uint32_t step_count = UINT32_MAX;
};

// `plan` is of a PlanFile. Its mapping, the arena and the cache must outlive the result.
Result<BoundPlan> bind(const plan::PlanView& plan, const KvPools& kv, const BindOptions& options);

}  // namespace ktx::runtime
