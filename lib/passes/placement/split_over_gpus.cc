#include "lib/passes/placement/split_over_gpus.h"

#include <numeric>

#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/host_links.h"
#include "lib/passes/cost/price.h"
#include "lib/passes/lower/divided_units.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/placement/choose_experts.h"
#include "lib/passes/placement/fill_gpus.h"
#include "lib/passes/placement/runnable_placement.h"

namespace ktx::passes {
namespace {

// The experts in runs of equal length, one for each GPU; those of the first are the stack's own.
std::vector<ExpertSplit> shares_of(const ir::Module& experts, std::span<const DeviceId> gpus) {
  const int32_t all = std::get<ir::ExpertsInfo>(experts.info).experts;
  const auto n = static_cast<int32_t>(gpus.size());
  const bool can_be_split = std::ranges::all_of(
      experts.params, [&](const ir::Param& param) { return experts_of(experts, param, {0}).ok(); });
  std::vector<ExpertSplit> splits;
  for (int32_t gpu = 1; gpu < n && all >= n && can_be_split; ++gpu) {
    const int32_t first = all * gpu / n, count = all * (gpu + 1) / n - first;
    ExpertSplit& split = splits.emplace_back();
    split.device = gpus[static_cast<size_t>(gpu)];
    split.experts.resize(static_cast<size_t>(count));
    std::iota(split.experts.begin(), split.experts.end(), first);
    split.count = count;
  }
  return splits;
}

}  // namespace

ModulePlace split_over_gpus(const ir::ModuleGraph& modules, const ir::Module& module,
                            std::span<const DeviceId> gpus) {
  ModulePlace place = place_of(module);
  place.device = is_embedding(module) ? DeviceId{} : gpus.front();
  if (module.layer < 0 || gpus.size() < 2) return place;
  const ir::Module* unit = unit_of(modules, module);
  if (module.role == ir::Role::Experts) {
    place.splits = shares_of(module, gpus);
  } else if (unit == nullptr || can_divide(modules, *unit, gpus.size())) {
    place.team.assign(gpus.begin(), gpus.end());
    place.divided = unit != nullptr;
  }
  return place;
}

bool split_where_faster(const PricedModel& model, const MemoryFormulas& formulas,
                        const HostGpus& host, Placement& placement) {
  const bool reach = std::ranges::all_of(
      host.gpus, [&](const DeviceId& gpu) { return rates_of(model.target, gpu).peer > 0; });
  if (host.gpus.size() < 2 || !reach || has_hosts(model.target)) return false;
  Placement together = placement;
  for (const ir::Module* module : host.open) {
    together.at(model.modules, *module) = split_over_gpus(model.modules, *module, host.gpus);
  }
  choose_experts(model, together);
  DiagSink unheard;
  keep_runnable(model, together, unheard);
  if (!fits(model, formulas, together, host)) return false;
  const ConversationTime time = price(model, together), alone = price(model, placement);
  if (time.token == 0 || alone.token == 0 || time.seconds() >= alone.seconds()) return false;
  placement = std::move(together);
  return true;
}

}  // namespace ktx::passes
