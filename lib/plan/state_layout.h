// Where the fixed-size states of a sequence are: those of its delta nets, one after another by
// number, in F32. Like keys and values they belong to the runtime, but their size does not depend
// on the sequence's length.
//
// Each device keeps those of its own steps; a slot (runtime/cache/state_pool.h) has its part on
// each.
//
//   const StateLayout states = state_layout(plan, "cuda:0");
//   states.offset(3)    // floats, where state 3 begins
//   states.floats()     // of a text at one place; 0: the model has none
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
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

// The states of all devices, as a saved session has them, or of one device.
StateLayout state_layout(const PlanView& plan);
StateLayout state_layout(const PlanView& plan, std::string_view device);

// A state of a device: where it begins there and among all, in bytes.
struct StatePart {
  uint64_t here = 0, among_all = 0, bytes = 0;
};
std::vector<StatePart> state_parts(const PlanView& plan, std::string_view device);
// For all devices of a host (plan_hosts.h), in the order of `among_all`; `here` is per device.
std::vector<StatePart> state_parts_of_host(const PlanView& plan, size_t host);

}  // namespace ktx::plan
