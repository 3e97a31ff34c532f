// The memory of a model's runs other than weights, as formulas: activations, keys and values,
// states. They hardly depend on the placement, so they are made once for all that are priced, from
// the steps of the model on one device and with its experts on the CPU beside a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/passes/cost/priced_model.h"
#include "lib/plan/memory.h"
#include "lib/program/program.h"

namespace ktx::passes {

struct MemoryFormulas {
  static Result<MemoryFormulas> make(const PricedModel& model);

  // What a device with routed experts needs more than one with all else.
  Result<uint64_t> scratch_of_experts(const plan::RunShape& shape) const;

  // The buffers of a device with all modules, with all but routed experts, and with routed experts
  // alone; the last two are empty where the model has no routed experts.
  std::vector<program::Buffer> all, without_experts, of_experts;
  std::vector<program::KvSlot> kv_slots;
  struct State {
    int32_t number = 0, layer = 0;
    int64_t floats = 0;
  };
  std::vector<State> states;
  int64_t given_floats = 0;  // of a row that comes with each token (lib/plan/given_rows.h)
};

Result<uint64_t> scratch_bytes(const std::vector<program::Buffer>& buffers,
                               const plan::RunShape& shape);

}  // namespace ktx::passes
