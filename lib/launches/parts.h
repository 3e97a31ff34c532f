// Parts (partitions): consecutive steps for one device, which the host hands over in order.
//
//   part 0  cpu      embed
//   part 1  cuda:0   x from the CPU, attention, router; three values to the CPU
//   part 2  cuda:0   shared experts                          (queued behind part 1)
//   part 3  cpu      routed experts            waits for part 1, not for part 2
//   part 4  cuda:0   their sum from the CPU, the next layer ...
//
// A GPU's part is queued and can be captured as a graph. It ends after values for the CPU, so that
// the CPU waits for these alone. Transfers from GPU to GPU are parts of their own. The last
// transfer, of a GPU's logits, is in no part, because the wanted rows differ from run to run
// (lib/runtime/gpu/gpu_logits.h).
#pragma once

#include <string>
#include <vector>

#include "lib/launches/launch.h"
#include "lib/launches/step_list.h"

namespace ktx::launches {

std::vector<Part> cut_parts(const StepList& list);

// Whose work a step is, as a part of that step alone.
Part part_of(const StepList& list, const std::vector<std::string>& value_devices, int32_t step);

// Whether the last step is the transfer of a GPU's logits to the CPU.
bool ends_with_logits(const StepList& list);

// By value: the device of the first step that writes it; "cpu" when none does.
std::vector<std::string> value_devices(const StepList& list);

}  // namespace ktx::launches
