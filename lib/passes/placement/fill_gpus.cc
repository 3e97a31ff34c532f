#include "lib/passes/placement/fill_gpus.h"

#include <algorithm>
#include <functional>
#include <map>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/placement/choose_experts.h"
#include "lib/passes/placement/gpu_formats.h"
#include "lib/plan/expert_profile.h"

namespace ktx::passes {
namespace {

using ir::Role;
using Modules = std::vector<const ir::Module*>;

// Fewer of a layer's experts than this share do not pay for the kernels that they take.
constexpr double kLeastSplit = 1.0 / 32;

bool is_late(const ir::Module& module) {
  return module.role == Role::Experts || is_embedding(module);
}

int32_t experts_of_layer(const ir::Module& experts) {
  return std::get<ir::ExpertsInfo>(experts.info).experts;
}

// Rounded up.
uint64_t expert_bytes(const ir::Module& experts) {
  return placed_bytes(experts) / static_cast<uint64_t>(experts_of_layer(experts)) + 1;
}

int32_t experts_that_fit(const ir::Module& experts, uint64_t room) {
  const uint64_t count = room / expert_bytes(experts);
  return static_cast<int32_t>(
      std::min<uint64_t>(count, static_cast<uint64_t>(experts_of_layer(experts)) - 1));
}

// Whether GPUs can compute some of its experts.
bool can_be_split(const ir::Module& module) {
  if (module.role != Role::Experts) return false;
  return experts_of_layer(module) > 1 &&
         std::ranges::all_of(module.params, [&](const ir::Param& param) {
           return gpu_refusal(Role::Experts, param).empty() && experts_of(module, param, {0}).ok();
         });
}

}  // namespace

Room room_of(const PricedModel& model, const MemoryFormulas& formulas, const Estimate& memory,
             const Placement& placement) {
  const auto has_experts = [&](const DeviceId& device) {
    return std::ranges::any_of(placement.of_module, [&](const ModulePlace& place) {
      return place.experts > 0 && experts_on(place, device) > 0;
    });
  };
  Room room;
  for (const DeviceUse& use : memory.devices) {
    const DeviceId device = target::device_id(use.name);
    uint64_t taken = use.total();
    if (!has_experts(device)) {
      plan::RunShape shape = model.check.shape;
      shape.step_tokens = placement.streams.way.chunk;
      const auto scratch = formulas.scratch_of_experts(shape);
      taken += scratch ? *scratch : 0;
    }
    if (use.capacity > taken) room[device] = use.capacity - taken;
  }
  return room;
}

namespace {

// Takes the experts of all layers that get the most activations for their bytes.
void take_most_used(const PricedModel& model, const HostGpus& host, const Modules& experts,
                    Room& room, Placement& placement) {
  struct Candidate {
    double use_per_byte;
    size_t module;
  };
  std::vector<Candidate> candidates;
  std::vector<int32_t> counts(experts.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    const int32_t all = experts_of_layer(*experts[i]), layer = experts[i]->layer;
    const auto bytes = static_cast<double>(expert_bytes(*experts[i]));
    for (int32_t expert : plan::experts_by_use(model.profile, layer, all)) {
      const double use = plan::expert_use(model.profile, layer, {&expert, 1}, all);
      candidates.push_back({use / std::max(bytes, 1.0), i});
    }
  }
  // Within a layer they come in the order in which split_experts() takes them.
  std::ranges::stable_sort(candidates, std::greater(), &Candidate::use_per_byte);
  for (const Candidate& candidate : candidates) {
    const ir::Module& module = *experts[candidate.module];
    uint64_t& left = room[host.gpu_of(model.target, module)];
    const uint64_t bytes = expert_bytes(module);
    if (left < bytes) continue;
    left -= bytes;
    ++counts[candidate.module];
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    split_experts(model, *experts[i], host.gpu_of(model.target, *experts[i]), counts[i],
                  placement.at(model.modules, *experts[i]));
  }
}

}  // namespace

bool fits(const PricedModel& model, const MemoryFormulas& formulas, const Placement& placement,
          const HostGpus& host) {
  const Result<Estimate> now = memory_of(model, formulas, placement);
  return now && std::ranges::all_of(now->devices, [&](const DeviceUse& use) {
           const DeviceId device = target::device_id(use.name);
           return device.is_cpu() || device.host != host.cpu.host || use.total() <= use.capacity;
         });
}

bool fit_on_fewer(const PricedModel& model, const MemoryFormulas& formulas, const HostGpus& host,
                  Placement& placement) {
  const bool used = std::ranges::any_of(placement.of_module, [&](const ModulePlace& place) {
    return (!place.device.is_cpu() && place.device.host == host.cpu.host) || !place.splits.empty();
  });
  if (used) return false;
  std::vector<DeviceId> gpus = host.gpus;
  std::ranges::stable_sort(gpus, std::greater(),
                           [&](const DeviceId& gpu) { return rates_of(model.target, gpu).read; });
  Placement tried = placement;
  for (size_t n = 1; n < gpus.size(); ++n) {
    const std::span fewer(gpus.data(), n);
    for (const ir::Module* module : host.open) {
      tried.at(model.modules, *module).device =
          gpu_of_layer(model.target, *module, host.layers, fewer);
    }
    if (!fits(model, formulas, tried, host)) continue;
    placement = std::move(tried);
    return true;
  }
  return false;
}

void place_early(const PricedModel& model, const HostGpus& host, Placement& placement) {
  for (const ir::Module* module : host.open) {
    if (is_late(*module)) continue;
    placement.at(model.modules, *module).device = host.gpu_of(model.target, *module);
  }
}

void take_late_to_cpu(const PricedModel& model, const HostGpus& host, Placement& placement) {
  for (const ir::Module* module : host.open) {
    if (!is_late(*module)) continue;
    ModulePlace& place = placement.at(model.modules, *module);
    place.device = host.cpu;
    place.splits.clear();
  }
}

void drop_until_fits(const PricedModel& model, const MemoryFormulas& formulas, const HostGpus& host,
                     Placement& placement) {
  int32_t low = host.layers.first, high = low + host.layers.count;  // layers kept on GPUs
  const auto keep = [&](int32_t layers) {
    Placement kept = placement;
    for (const ir::Module* module : host.open) {
      if (module->layer >= 0 && module->layer < layers) continue;
      kept.at(model.modules, *module).device = host.cpu;
    }
    return kept;
  };
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (fits(model, formulas, keep(middle), host)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  placement = keep(low);
}

void fill_with_experts(const PricedModel& model, const MemoryFormulas& formulas,
                       const HostGpus& host, bool by_use, Placement& placement) {
  const Result<Estimate> now = memory_of(model, formulas, placement);
  if (!now) return;
  Room room = room_of(model, formulas, *now, placement);
  Modules experts;  // that are still on the CPU
  for (const ir::Module* module : host.open) {
    if (!is_late(*module)) continue;
    const bool may_split = can_be_split(*module);
    const DeviceId& device = host.gpu_of(model.target, *module);
    const uint64_t bytes = placed_bytes(*module);
    if (room[device] < bytes || (by_use && may_split)) {
      if (may_split) experts.push_back(module);
      continue;
    }
    room[device] -= bytes;
    placement.at(model.modules, *module).device = device;
  }
  if (by_use) return take_most_used(model, host, experts, room, placement);
  for (const ir::Module* module : experts) {
    const DeviceId& device = host.gpu_of(model.target, *module);
    const int32_t count = experts_that_fit(*module, room[device]);
    if (count < kLeastSplit * experts_of_layer(*module)) continue;
    split_experts(model, *module, device, count, placement.at(model.modules, *module));
    room[device] = 0;
  }
}

}  // namespace ktx::passes
