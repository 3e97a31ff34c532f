// The steps of routed experts, as the rules of fused ops find them.
#pragma once

#include "lib/program/fused/group_search.h"

namespace ktx::program {

struct ExpertSteps {
  int32_t router = 0, group = 0, gate_up = 0, down = 0;

  GroupSearch::Steps all() const { return {router, group, gate_up, down}; }
  // Values that they read, and that the first of two launches writes for the second.
  std::vector<int32_t> read(const GroupSearch& search) const {
    return {search.in(router, 0), search.in(gate_up, 0)};
  }
  std::vector<int32_t> between(const GroupSearch& search) const {
    return {search.out(router, 1), search.out(gate_up)};
  }
};

// Those behind `router`, where nothing else reads what they hand on.
std::optional<ExpertSteps> experts_of(const GroupSearch& search, int32_t router);

// Adds a group of two launches, if its buffers allow it: `between` are the values that the second
// reads of the first.
void add_two_launches(GroupSearch& search, FusedOp op, const GroupSearch::Steps& steps,
                      const std::vector<int32_t>& read, const std::vector<int32_t>& between,
                      int32_t out);

}  // namespace ktx::program
