#include "lib/passes/placement/choose_experts.h"

#include <algorithm>
#include <set>

namespace ktx::passes {
namespace {

// The most used of those that are not taken, in rising order.
std::vector<int32_t> most_used(const plan::ExpertProfile* profile, int32_t layer, int32_t all,
                               int32_t count, const std::set<int32_t>& taken) {
  std::vector<int32_t> chosen;
  for (int32_t expert : plan::experts_by_use(profile, layer, all)) {
    if (std::ssize(chosen) < count && !taken.contains(expert)) chosen.push_back(expert);
  }
  std::ranges::sort(chosen);
  return chosen;
}

void choose(const plan::ExpertProfile* profile, int32_t layer, ModulePlace& place) {
  std::set<int32_t> taken;
  for (const ExpertSplit& split : place.splits) {
    taken.insert(split.experts.begin(), split.experts.end());
  }
  for (ExpertSplit& split : place.splits) {
    if (split.count == 0) continue;  // until choose_slots()
    if (split.experts.empty()) {
      split.experts = most_used(profile, layer, place.experts, split.count, taken);
      taken.insert(split.experts.begin(), split.experts.end());
    }
    split.use = static_cast<float>(plan::expert_use(profile, layer, split.experts, place.experts));
  }
}

// Splits on the stack's own device are none, and those on one device are one.
void join_splits(ModulePlace& place) {
  std::vector<ExpertSplit> joined;
  for (ExpertSplit& split : place.splits) {
    if (split.device == place.device) continue;
    const auto same = std::ranges::find_if(joined, [&](const ExpertSplit& other) {
      return other.device == split.device && other.guests == split.guests;
    });
    if (same == joined.end()) {
      joined.push_back(std::move(split));
      continue;
    }
    same->experts.insert(same->experts.end(), split.experts.begin(), split.experts.end());
    std::ranges::sort(same->experts);
    same->count += split.count;
    same->use = std::min(1.0f, same->use + split.use);
  }
  place.splits = std::move(joined);
}

}  // namespace

void choose_experts(const PricedModel& model, Placement& placement) {
  const auto attention = attention_devices(model.modules, placement);
  for (size_t i = 0; i < placement.of_module.size(); ++i) {
    ModulePlace& place = placement.of_module[i];
    if (place.splits.empty()) continue;
    const int32_t layer = model.modules.modules[i].layer;
    choose(model.profile, layer, place);
    const auto near = attention.find(layer);
    for (ExpertSplit& split : place.splits) {
      if (!split.device && near != attention.end()) split.device = near->second;
    }
    join_splits(place);
  }
}

void split_experts(const PricedModel& model, const ir::Module& experts, const DeviceId& device,
                   int32_t count, ModulePlace& place) {
  place.splits.clear();
  place.device = count >= place.experts ? device : device.cpu_beside();
  if (count <= 0 || count >= place.experts) return;
  place.splits.push_back({.device = device, .experts = {}, .count = count});
  choose(model.profile, experts.layer, place);
}

}  // namespace ktx::passes
