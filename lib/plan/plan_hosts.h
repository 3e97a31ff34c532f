// The hosts of a plan: machines that run it together, each its own steps with its own weights.
//
// A plan is read as one of its hosts: there "cpu" is always the CPU at hand. In the plan as it is
// stored, and on the first host, the devices of the others have their host's name in front
// ("b/cpu", "b/cuda:0"; lib/target/host_device.h). Where it is read as host b, both are exchanged:
// "cpu" is that of b, and "b/cpu" the first host's. So all that walks steps, weights or caches of
// "cpu" and "cuda:0" finds those of its own machine.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Two or more; a plan for one machine has none.
inline bool has_hosts(const PlanView& plan) {
  return !plan.target.hosts.empty();
}
inline size_t host_count(const PlanView& plan) {
  return has_hosts(plan) ? plan.target.hosts.size() : 1;
}

// By rank.
std::vector<std::string> host_names(const PlanView& plan);

// The number of a device's host, which verify_hosts() has checked; as PlanView::host is.
size_t host_of(const PlanView& plan, std::string_view device);
// For a segment; carried tensors belong to the first host.
size_t host_of(const PlanView& plan, const SegmentRecord& segment);

// Whether the list of hosts is sound, and each device of steps, weights and caches is of one of
// them, and has its names on all. The records' strings have been checked.
Status verify_hosts(const PlanView& plan);

// The number of the string that is the CPU's name on a host of the plan; kNone where there is none.
uint32_t cpu_string(const PlanView& plan, size_t host);

// The same for any device by its name there ("cuda:0"), which verify_hosts() has checked.
uint32_t device_string(const PlanView& plan, size_t host, std::string_view name_there);
// What a stored device (the number of its name) is called where the plan is read as this host.
uint32_t name_as_read_on(const PlanView& plan, size_t host, uint32_t device);

// Whether the file has the weights of the host as which it is read.
Status check_part(const PlanView& plan);
// Whether it has those of a segment.
bool has_weights(const PlanView& plan, const SegmentRecord& segment);

}  // namespace ktx::plan
