#include "lib/passes/placement/choose_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/placement/choose_experts.h"
#include "lib/passes/placement/fill_gpus.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

constexpr int32_t kShareUnknown = 4;  // of the experts, where the memory is not known

bool is_open(const ExpertSplit& split) {
  return split.guests && split.count == 0;
}

// Modules that have open slots, by GPU.
std::map<DeviceId, std::vector<size_t>> open_slots(const Placement& placement) {
  std::map<DeviceId, std::vector<size_t>> open;
  for (size_t i = 0; i < placement.of_module.size(); ++i) {
    for (const ExpertSplit& split : placement.of_module[i].splits) {
      if (is_open(split) && split.device) open[*split.device].push_back(i);
    }
  }
  return open;
}

// The most slots that a layer can have: one expert stays the CPU's alone.
int32_t most_slots(const ModulePlace& place) {
  int32_t most = place.experts - 1;
  for (const ExpertSplit& split : place.splits) most -= split.count;
  return most;
}

uint64_t bytes_of_slot(const PricedModel& model, const std::vector<size_t>& modules,
                       const Placement& placement) {
  uint64_t sum = 0;
  for (const size_t i : modules) {
    const auto experts = static_cast<uint64_t>(placement.of_module[i].experts);
    sum += placed_bytes(model.modules.modules[i]) / experts + 1;
  }
  return sum;
}

}  // namespace

std::string choose_slots(const PricedModel& model, Placement& placement) {
  const auto open = open_slots(placement);
  if (open.empty()) return "";
  std::string note;
  std::map<DeviceId, uint64_t> room;
  const Result<MemoryFormulas> formulas = MemoryFormulas::make(model);
  const bool known = model.check.target_given || !model.check.only;
  if (known && formulas) {
    if (const auto now = memory_of(model, *formulas, placement)) {
      room = room_of(model, *formulas, *now, placement);
    }
  }
  for (const auto& [device, modules] : open) {
    const uint64_t slot = bytes_of_slot(model, modules, placement);
    const bool has_room = room.contains(device);
    const uint64_t fit = has_room ? room.at(device) / slot : 0;
    if (known && fit == 0) {
      note = fmt::format(
          "{} has no room for a slot in each of {} layers, {}: their experts are "
          "the CPU's alone",
          to_string(device), modules.size(), human_bytes(slot));
    }
    for (const size_t i : modules) {
      ModulePlace& place = placement.of_module[i];
      const auto most = static_cast<uint64_t>(std::max(most_slots(place), 0));
      const auto guess = static_cast<uint64_t>(place.experts / kShareUnknown);
      const auto split = std::ranges::find_if(place.splits, is_open);
      split->count = static_cast<int32_t>(std::min(most, known ? fit : guess));
      if (split->count == 0) place.splits.erase(split);
    }
  }
  choose_experts(model, placement);
  return note;
}

}  // namespace ktx::passes
