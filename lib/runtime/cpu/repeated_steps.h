// Runs each step of a part of the CPU twice, by this machine's kernel and by the scalar one, on the
// same inputs, and measures how far apart the results are: finds the step with a wrong kernel
// (lib/runtime/quality/locate_fault.h).
//
//   step 12 (matmul of model.layers.0.self_attn.q_proj)   3e-7    |fast - scalar| / |scalar|
//   step 13 (rope of model.layers.0.self_attn)            0.41    this one
//
// The next step reads this machine's result, so that differences do not accumulate.
// Compared are the values, cache rows and states that the step writes. Slow: a step at a time,
// bound each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/runtime/cpu/bind.h"
#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"
#include "lib/support/result.h"

namespace ktx::runtime {

class RepeatedSteps {
 public:
  // All must outlive it, and setup.on_repeat be set.
  RepeatedSteps(const BackendSetup& setup, const HostArena& arena, AttentionPartials& partials)
      : setup_(setup), arena_(arena), partials_(partials) {}

  // Calls `done` behind each step, whose outputs are as this machine's kernel left them.
  Status run(const Part& part, const Batch& batch, const std::function<void(uint32_t step)>& done);

 private:
  Status run_once(uint32_t step, Isa isa, const Batch& batch);

  const BackendSetup setup_;
  const HostArena& arena_;
  AttentionPartials& partials_;
};

}  // namespace ktx::runtime
