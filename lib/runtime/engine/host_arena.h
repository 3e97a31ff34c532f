// The activations in host memory: values that the CPU computes, and copies of those of GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/plan/device_memory.h"
#include "lib/runtime/engine/arena.h"

namespace ktx::runtime {

struct HostArena {
  // `behind`: bytes behind the layout's, for guesses (experts/expert_prediction.h).
  static Result<HostArena> create(const plan::PlanView& plan, const plan::RunShape& shape,
                                  uint64_t behind = 0) {
    HostArena host;
    host.layout =
        KTX_TRY(plan::lay_out_device_arena(plan, "cpu", shape.step_tokens, shape.step_outputs));
    host.memory = KTX_TRY(Arena::allocate(host.layout.total_bytes + behind, "activations"));
    return host;
  }

  std::byte* place(const program::Value& value) const {
    return memory.data() + layout.offsets[value.buffer];
  }

  Arena memory;
  plan::ArenaLayout layout;
};

}  // namespace ktx::runtime
