#include "lib/passes/placement.h"

#include <algorithm>

#include "lib/passes/lower/divided_units.h"

namespace ktx::passes {

ModulePlace place_of(const ir::Module& module) {
  ModulePlace place{target::device_id(module.decision.device)};
  for (const std::string& gpu : module.decision.team) {
    place.team.push_back(target::device_id(gpu));
  }
  if (const auto* info = std::get_if<ir::ExpertsInfo>(&module.info)) place.experts = info->experts;
  for (const ir::ExpertSet& set : module.decision.expert_sets) {
    place.splits.push_back(
        {target::parse_device_id(set.device), set.experts, set.count, set.use, set.guests});
  }
  return place;
}

StreamChoice streams_of(const CompileState& state) {
  return {{state.stream_slots, state.check.shape.step_tokens},
          state.prefer.stream_tokens,
          state.prefer.joint_tokens};
}

Placement placement_of(const CompileState& state) {
  Placement placement{{}, streams_of(state)};
  placement.of_module.reserve(state.modules.modules.size());
  for (const ir::Module& module : state.modules.modules) {
    ModulePlace& place = placement.of_module.emplace_back(place_of(module));
    place.divided =
        !place.team.empty() && unit_of(state.modules, module) != nullptr && has_parts(module);
  }
  return placement;
}

void write_placement(const Placement& placement, ir::ModuleGraph& modules) {
  for (size_t i = 0; i < modules.modules.size(); ++i) {
    const ModulePlace& place = placement.of_module[i];
    ir::Decision& decision = modules.modules[i].decision;
    decision.device = to_string(place.device);
    decision.team.clear();
    for (const DeviceId& gpu : place.team) decision.team.push_back(to_string(gpu));
    decision.expert_sets.clear();
    for (const ExpertSplit& split : place.splits) {
      decision.expert_sets.push_back({split.device ? to_string(*split.device) : "auto",
                                      split.experts, split.count, split.use, split.guests});
    }
  }
}

std::map<int32_t, DeviceId> attention_devices(const ir::ModuleGraph& modules,
                                              const Placement& placement) {
  std::map<int32_t, DeviceId> devices;
  for (size_t i = 0; i < modules.modules.size(); ++i) {
    const ir::Module& module = modules.modules[i];
    if (ir::kind_of(module.role) != ir::Kind::Attention) continue;
    devices[module.layer] = placement.of_module[i].device;
  }
  return devices;
}

std::map<int32_t, std::vector<DeviceId>> attention_teams(const ir::ModuleGraph& modules,
                                                         const Placement& placement,
                                                         DividedKind kind) {
  std::map<int32_t, std::vector<DeviceId>> teams;
  for (size_t i = 0; i < modules.modules.size(); ++i) {
    const ir::Module& module = modules.modules[i];
    const std::vector<DeviceId>& team = placement.of_module[i].team;
    const bool attention = ir::kind_of(module.role) == ir::Kind::Attention;
    if (attention && kind_of_unit(module) == kind && !team.empty()) teams[module.layer] = team;
  }
  return teams;
}

int32_t experts_on(const ModulePlace& place, const DeviceId& device) {
  int32_t here = place.experts, found = 0;
  for (const ExpertSplit& split : place.splits) {
    if (!split.guests) here -= split.count;
    if (split.device == device) found += split.count;
  }
  return found + (place.device == device ? here : 0);
}

uint64_t bytes_on(const ModulePlace& place, const DeviceId& device, uint64_t bytes) {
  if (!place.team.empty()) {
    const bool here = std::ranges::find(place.team, device) != place.team.end();
    return !here ? 0 : place.divided ? bytes / place.team.size() : bytes;
  }
  if (place.splits.empty()) return place.device == device ? bytes : 0;
  const double share =
      static_cast<double>(experts_on(place, device)) / static_cast<double>(place.experts);
  return static_cast<uint64_t>(static_cast<double>(bytes) * share);
}

std::vector<DeviceId> devices_of(const ModulePlace& place) {
  std::vector<DeviceId> devices = place.team;
  if (devices.empty()) devices.push_back(place.device);
  for (const ExpertSplit& split : place.splits) {
    const DeviceId device = split.device.value_or(DeviceId{});
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

size_t cpu_groups(const ModulePlace& place) {
  size_t count = place.device.is_cpu() ? 1 : 0;
  for (const ExpertSplit& split : place.splits) {
    count += split.device && split.device->is_cpu() ? 1 : 0;
  }
  return count;
}

double gpu_expert_use(const Placement& placement) {
  double use = 0;
  int64_t layers = 0;
  for (const ModulePlace& place : placement.of_module) {
    if (place.experts == 0) continue;
    ++layers;
    float rest = 1;
    for (const ExpertSplit& split : place.splits) rest = std::max(0.0f, rest - split.use);
    if (!place.device.is_cpu()) use += rest;
    for (const ExpertSplit& split : place.splits) {
      if (!split.device || !split.device->is_cpu()) use += split.use;
    }
  }
  return layers > 0 ? use / static_cast<double>(layers) : -1;
}

}  // namespace ktx::passes
