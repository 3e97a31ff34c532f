// Checks parts and launches against the steps: what the runtime relies on when it binds them.
//
//   - parts hold all steps in order, each those of one device
//   - a launch is of one step or of a group that is_fused, in one part, with a kernel that has
//     the op, the generations and the needs that the launch says
//   - two groups are the same steps or have none in common
//   - for every generation of GPUs, the launches of each single step that need nothing have any
//     number of rows
//
// Safe for untrusted plans whose steps have passed their own verifier; the cost is linear in
// steps and launches.
#pragma once

#include <span>

#include "lib/launches/launch.h"
#include "lib/launches/step_list.h"
#include "lib/support/result.h"

namespace ktx::launches {

Status verify_parts(const StepList& list, std::span<const Part> parts);
// The parts have passed.
Status verify_launches(const StepList& list, std::span<const Part> parts,
                       std::span<const Launch> launches);

}  // namespace ktx::launches
