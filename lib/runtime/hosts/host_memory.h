// The memory that is free on the other hosts of a run, of their GPUs too, before their parts of a
// plan are opened: what `--ctx max` is chosen by.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// By device of the plan ("b/cpu", "b/cuda:0"); without those that are not known.
struct HostsMemory {
  std::map<std::string, uint64_t> cpus;
  std::map<std::string, GpuFacts> gpus;  // with their memory alone
};
// Fails when a host is lost.
Result<HostsMemory> memory_of_hosts(const plan::PlanView& plan, HostGroup& group);
// The answer of a host that follows, which keeps `reserved` bytes for something else. The GPUs that
// are asked for are opened for that, and closed.
MessageBytes own_memory(const MessageBytes& question, uint64_t reserved, const OpenGpu& open_gpu);

}  // namespace ktx::runtime
