// How many slots for guests (ir::ExpertSet) the layers of a GPU have where their rule says
// `slots: auto`: as many as the GPU has room for beside all else, the same number in each layer.
//
//   cuda:0   8 GiB, all else 2.9 GiB   48 layers of experts of 2.5 MiB   ->   42 slots a layer
//
// Where the memory is not known, a quarter of the experts. What streams experts in prompts takes
// its room first (stream_experts.h).
#pragma once

#include <string>

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// Sets their counts, experts and uses. Returns a note where a GPU has no room for one slot a layer;
// the experts are then the CPU's alone.
std::string choose_slots(const PricedModel& model, Placement& placement);

}  // namespace ktx::passes
