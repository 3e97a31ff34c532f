// The memory that is free on the other hosts of a run, before their parts of a plan are opened:
// what
// `--ctx max` is chosen by.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Bytes by device of the plan ("b/cpu"); without those that do not know. Fails when a host is lost.
Result<std::map<std::string, uint64_t>> memory_of_hosts(const plan::PlanView& plan,
                                                        HostGroup& group);
// The answer of a host that follows, which keeps `reserved` bytes for something else.
MessageBytes own_memory(uint64_t reserved);

}  // namespace ktx::runtime
