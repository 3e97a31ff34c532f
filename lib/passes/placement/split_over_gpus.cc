#include "lib/passes/placement/split_over_gpus.h"

#include <numeric>

#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/price.h"
#include "lib/passes/cost/target_devices.h"
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
                            std::span<const DeviceId> gpus, const DividedKinds& kinds) {
  ModulePlace place = place_of(module);
  place.device = is_embedding(module) ? DeviceId{} : gpus.front();
  if (gpus.size() < 2) return place;
  const ir::Module* unit = unit_of(modules, module);
  if (module.role == ir::Role::FinalNorm) unit = modules.child(modules.root(), ir::Role::Head);
  if (module.layer < 0 && (unit == nullptr || unit->role != ir::Role::Head)) return place;
  if (unit != nullptr && !kinds[static_cast<size_t>(kind_of_unit(*unit))]) return place;
  if (module.role == ir::Role::Experts) {
    place.splits = shares_of(module, gpus);
  } else if (unit == nullptr || can_divide(modules, *unit, gpus.size())) {
    place.team.assign(gpus.begin(), gpus.end());
    place.divided = unit != nullptr && has_parts(module);
  }
  return place;
}

namespace {

// Whether GPUs can add up what all of them have, by each other's memory or that of the host, at a
// rate that the target knows.
bool can_add_up(const PricedModel& model, const HostGpus& host) {
  return host.gpus.size() > 1 && !has_hosts(model.target) &&
         std::ranges::all_of(host.gpus, [&](const DeviceId& gpu) {
           const DeviceRates rates = rates_of(model.target, gpu);
           return rates.peer > 0 || rates.sum > 0;
         });
}

// The kinds that the open modules have.
DividedKinds kinds_of(const PricedModel& model, const HostGpus& host) {
  DividedKinds kinds;
  for (const ir::Module* module : host.open) {
    const ir::Module* unit = unit_of(model.modules, *module);
    const bool goes = unit == module && (module->role == ir::Role::Experts ||
                                         can_divide(model.modules, *unit, host.gpus.size()));
    if (goes) kinds.set(static_cast<size_t>(kind_of_unit(*unit)));
  }
  return kinds;
}

}  // namespace

bool split_where_faster(const PricedModel& model, const MemoryFormulas& formulas,
                        const HostGpus& host, Placement& placement,
                        std::vector<TeamTrial>& trials) {
  if (!can_add_up(model, host)) return false;
  const TeamTrial alone{{}, price(model, placement), false};
  if (alone.time.token == 0) return false;
  Placement best;
  const TeamTrial* chosen = nullptr;
  std::vector<TeamTrial> tried;
  tried.reserve(kDividedKinds + 2);
  const auto attempt = [&](const DividedKinds& kinds) {
    Placement together = placement;
    for (const ir::Module* module : host.open) {
      together.at(model.modules, *module) =
          split_over_gpus(model.modules, *module, host.gpus, kinds);
    }
    choose_experts(model, together);
    DiagSink unheard;
    keep_runnable(model, together, unheard);
    if (!fits(model, formulas, together, host)) return;
    tried.push_back({kinds, price(model, together), false});
    const ConversationTime& time = tried.back().time;
    if (time.token == 0) return;
    if (chosen != nullptr && time.seconds() >= chosen->time.seconds()) return;
    best = std::move(together);
    chosen = &tried.back();
  };
  const DividedKinds all = kinds_of(model, host);
  attempt(all);
  // Without each kind that is not worth its sums.
  for (size_t kind = 0; kind < kDividedKinds; ++kind) {
    DividedKinds fewer = chosen != nullptr ? chosen->kinds : all;
    if (!fewer[kind]) continue;
    fewer.reset(kind);
    if (fewer.any()) attempt(fewer);
  }
  tried.push_back(alone);
  const bool faster = chosen != nullptr && chosen->time.seconds() < alone.time.seconds();
  tried[faster ? static_cast<size_t>(chosen - tried.data()) : tried.size() - 1].chosen = true;
  if (faster) placement = std::move(best);
  std::erase_if(tried, [](const TeamTrial& trial) { return trial.time.token == 0; });
  trials = std::move(tried);
  return faster;
}

}  // namespace ktx::passes
