// The rules of the fused ops, one file each (fused/fused_<name>.cc), by their rows in
// lib/ops/fused_ops.def:
//
//   find_<name>      adds the group that begins at a step of the op in the row, if there is one
//   describe_<name>  what the choice of a kernel depends on (GpuForm)
#pragma once

#include <span>

#include "lib/program/fused/group_members.h"
#include "lib/program/fused/group_search.h"

namespace ktx::program {

struct FusedRule {
  FusedOp op;
  StepOp from;
  int turn;  // 1: first; 2: among the steps that those leave; 3: around groups of these
  void (*find)(GroupSearch& search, int32_t step);
  void (*describe)(kernels::GpuForm& form, const GroupMembers& steps);
};

std::span<const FusedRule> fused_rules();
const FusedRule& fused_rule(FusedOp op);

#define KTX_FUSED_OP(id, name, ...)             \
  void find_##name(GroupSearch&, int32_t step); \
  void describe_##name(kernels::GpuForm&, const GroupMembers&);
#include "lib/ops/fused_ops.def"
#undef KTX_FUSED_OP

}  // namespace ktx::program
