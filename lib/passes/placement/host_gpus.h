// The GPUs of a host, and the modules that no rule has placed and that may go there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// A run of consecutive layers.
struct LayerRun {
  int32_t first = 0, count = 0;
};

struct HostGpus {
  DeviceId cpu;
  std::vector<DeviceId> gpus;  // that are new enough
  std::vector<const ir::Module*> open;
  LayerRun layers;  // of all of them

  // The GPU that has the module's layer, and what is behind the layers.
  const DeviceId& gpu_of(const target::Target& target, const ir::Module& module) const;
};

// The hosts (or the one machine) that have GPUs and, on their CPUs, open modules.
std::vector<HostGpus> hosts_with_gpus(const PricedModel& model, const Placement& placement,
                                      const std::vector<const ir::Module*>& open);

// The one of these GPUs that a module's layer falls on: equal shares of the layers of a run, or
// shares by memory where the target says how much each has.
const DeviceId& gpu_of_layer(const target::Target& target, const ir::Module& module,
                             const LayerRun& layers, std::span<const DeviceId> gpus);

bool is_embedding(const ir::Module& module);

}  // namespace ktx::passes
