// Checks parts and launches against the steps. The runtime relies on these rules:
//
//   - parts hold all steps in order, each those of one device
//   - a launch has one step, or a group that is_fused, within one part; its kernel has the op, the
//     generations and the needs that the launch says
//   - launches of steps of the CPU are of streams (streams.h), begin at one number of tokens and
//     cover every greater one
//   - two groups are equal or disjoint
//   - for every generation of GPUs, the launches of each single step that need nothing cover every
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
