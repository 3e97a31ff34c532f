// The hosts of a plan (plan_hosts.h) for `ktx-run inspect`: what each holds and computes.
//
//   hosts
//     rank  host  layers    weights  kv cache  activations
//        0  a     0..18    9.33 GiB  1.19 GiB      0.1 GiB
//        1  b     19..31   0.00 GiB  0.00 GiB      0.1 GiB
//           b/cuda:0       6.38 GiB  0.81 GiB      0.1 GiB
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_reader.h"

namespace ktx::plan {

struct HostUse {
  std::string name;
  uint64_t capacity = 0;                      // of the target; 0: not stated
  int32_t first_layer = -1, last_layer = -1;  // that have steps here, from the first to the last
  int32_t layers = 0;
  DeviceMemory cpu;                // for `shape`
  std::vector<DeviceMemory> gpus;  // by their names on the host
};

// One for each host; none for a plan for one machine.
Result<std::vector<HostUse>> host_uses(const PlanView& plan, const RunShape& shape);

// The section of the tables; "" of a plan for one machine.
std::string host_lines(const PlanView& plan, const RunShape& shape);

}  // namespace ktx::plan
