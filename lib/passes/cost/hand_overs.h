// Counts how often a token goes from one device to another, in the steps of a placement.
//
//   n@cpu = transfer(n)         one hand-over to the CPU, of three values
//   ids@cpu = transfer(ids)
//   w@cpu = transfer(w)
//   y = experts_down(...)
//   y@cuda:0 = transfer(y)      one hand-over back
//
// Transfers from a device that has computed nothing since its last transfer to the same device
// count with that one: the devices wait for each other once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

struct HandOver {
  std::string from, to;  // devices
  int32_t layer = -1;    // of the step that reads what comes
  // Whether the steps before and after it belong to one layer, whose parts are thus on
  // several devices.
  bool within_layer = false;
};

struct HandOvers {
  std::vector<HandOver> all;  // in the order of the steps
  int64_t values = 0;         // transferred in all
  // Modules that have steps on each device, by path.
  std::map<std::string, std::set<std::string>> modules_on;

  int count() const { return static_cast<int>(all.size()); }
};

// Fails where the model cannot be lowered with these devices.
Result<HandOvers> find_hand_overs(const PricedModel& model, const Placement& placement);

}  // namespace ktx::passes
