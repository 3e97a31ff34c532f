// Checks parts and launches against the steps. The runtime relies on these rules:
//
//   - parts hold all steps in order, each those of one device
//   - a group is_fused within one part on a GPU
//   - a launch has one step, or a group that is_fused, within one part; its kernel has the op, the
//     generations and the needs that the launch says
//   - launches of steps of the CPU are of streams (streams.h), begin at one number of tokens and
//     cover every greater one
//   - two groups are equal or disjoint, or one is around the other and of the third turn
//   - for every generation of GPUs, the launches of each single step that need nothing cover every
//     number of rows
//
// Safe for untrusted plans whose steps have passed their own verifier; the cost is linear in
// steps and launches.
#pragma once

#include "lib/program/program.h"
#include "lib/support/result.h"

namespace ktx::program {

Status verify_parts(const Program& program);
// The parts have passed. A plan stores no groups: those that it uses are in its launches.
Status verify_groups(const Program& program);
Status verify_launches(const Program& program);

}  // namespace ktx::program
