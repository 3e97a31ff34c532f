// A placement as a value: the device of each module, which experts of a layer are elsewhere, and
// how those of the CPU are streamed. The search (find_placement.h) makes many, prices them
// (price.h) and keeps the cheapest; the pass place-devices writes that one into the modules.
//
//   Placement now = placement_of(state);       // as the modules have it
//   now.of_module[17].device = {"", Kind::Cuda, 1};
//   write_placement(now, state.modules);       // back
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/ir/module_graph.h"
#include "lib/passes/pass.h"
#include "lib/passes/stream_trial.h"
#include "lib/passes/team_trial.h"
#include "lib/target/device_id.h"

namespace ktx::passes {

using target::DeviceId;

// As ir::ExpertSet.
struct ExpertSplit {
  std::optional<DeviceId> device;  // none: that of the layer's attention, once it has one
  std::vector<int32_t> experts;    // rising; empty: `count` of them, see choose_experts.h
  int32_t count = 0;
  float use = 0;
  bool guests = false;
};

struct ModulePlace {
  DeviceId device;
  // GPUs that compute the module together, `device` first; empty: it alone. Each has a part of the
  // weights, where they are divided, or all of them.
  std::vector<DeviceId> team = {};
  bool divided = false;
  std::vector<ExpertSplit> splits = {};  // of routed experts; the others are on `device`
  int32_t experts = 0;                   // routed ones of the module, on all devices
};

struct StreamChoice {
  StreamWay way;
  int64_t tokens = 0;  // of a pass from which on experts are streamed; 0: never
  int64_t joint = 0;   // program::Preferences::joint_tokens
};

struct Placement {
  std::vector<ModulePlace> of_module;  // by ir::ModuleId
  StreamChoice streams;

  ModulePlace& at(const ir::ModuleGraph& modules, const ir::Module& module) {
    return of_module[static_cast<size_t>(&module - modules.modules.data())];
  }
  const ModulePlace& at(const ir::ModuleGraph& modules, const ir::Module& module) const {
    return of_module[static_cast<size_t>(&module - modules.modules.data())];
  }
};

// What the module's decision says; a device that is still to be chosen is the CPU.
ModulePlace place_of(const ir::Module& module);
StreamChoice streams_of(const CompileState& state);
Placement placement_of(const CompileState& state);

// The reverse; leaves the rest of the decisions alone.
void write_placement(const Placement& placement, ir::ModuleGraph& modules);

// The device of each layer's attention; layers without one are left out.
std::map<int32_t, DeviceId> attention_devices(const ir::ModuleGraph& modules,
                                              const Placement& placement);

// The GPUs that compute a layer's attention together, for layers where several do: that with keys
// in a cache (Attention), or that with a state of a fixed size (States). A layer may have both.
std::map<int32_t, std::vector<DeviceId>> attention_teams(const ir::ModuleGraph& modules,
                                                         const Placement& placement,
                                                         DividedKind kind);

// How many experts of a module have weights on `device`; also before it is known which.
int32_t experts_on(const ModulePlace& place, const DeviceId& device);
// Bytes of a module's weights on `device`, of `bytes` in all.
uint64_t bytes_on(const ModulePlace& place, const DeviceId& device, uint64_t bytes);
// The devices of a module's weights, its own first.
std::vector<DeviceId> devices_of(const ModulePlace& place);
// How many CPUs, of different hosts, have experts of a module.
size_t cpu_groups(const ModulePlace& place);
// The share of all activations of routed experts that GPUs are expected to serve; -1: the model has
// no routed experts.
double gpu_expert_use(const Placement& placement);

}  // namespace ktx::passes
