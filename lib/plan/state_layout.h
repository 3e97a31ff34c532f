// Where the fixed-size states of a sequence are: those of its delta nets, one behind the other by
// number, in F32. Like keys and values they are the runtime's, but a sequence of any length has as
// many.
//
//   const StateLayout states = state_layout(plan);
//   states.offset(3)    // floats, where state 3 begins
//   states.floats()     // of a text at one place; 0: the model has none
#pragma once

#include <cstdint>
#include <vector>

#include "lib/plan/plan_reader.h"

namespace ktx::plan {

class StateLayout {
 public:
  void add(int32_t state, int64_t floats);  // of a verified plan or graph, in any order
  int64_t offset(int32_t state) const;
  int64_t floats() const { return offset(static_cast<int32_t>(sizes_.size())); }
  uint64_t bytes() const { return static_cast<uint64_t>(floats()) * sizeof(float); }

 private:
  std::vector<int64_t> sizes_;  // by state, whole cache lines
};

StateLayout state_layout(const PlanView& plan);

}  // namespace ktx::plan
