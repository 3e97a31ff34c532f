// The text of --estimate: a table of the devices' memory, in one unit, then lines of at most 100
// columns about it.
#pragma once

#include <string>
#include <vector>

#include "lib/passes/cost/estimate.h"

namespace ktx::passes {

std::string print_estimate(const Estimate& estimate);
std::string estimate_table(const Estimate& estimate);
std::string memory_notes(const Estimate& estimate);
std::string speed_notes(const Estimate& estimate);
std::string disk_notes(const Estimate& estimate);  // "": all weights fit
// The alternatives to the placement: a table of ways to stream experts; "": there were none.
std::string trials_table(const std::vector<StreamTrial>& trials);

}  // namespace ktx::passes
