#include "lib/passes/placement/find_placement.h"

#include <algorithm>
#include <optional>

#include "lib/passes/cost/price.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lower/prefill_device.h"
#include "lib/passes/placement/choose_experts.h"
#include "lib/passes/placement/choose_slots.h"
#include "lib/passes/placement/fill_gpus.h"
#include "lib/passes/placement/placed_by_rules.h"
#include "lib/passes/placement/runnable_placement.h"
#include "lib/passes/placement/split_over_gpus.h"
#include "lib/passes/placement/spread_over_hosts.h"
#include "lib/passes/placement/stream_experts.h"

namespace ktx::passes {
namespace {

using Hosts = std::vector<HostGpus>;

bool experts_on_cpu(const PricedModel& model, const Placement& placement, const Hosts& hosts) {
  return std::ranges::any_of(model.modules.modules, [&](const ir::Module& module) {
    return can_be_streamed(model.rules, module) &&
           std::ranges::find(hosts, placement.at(model.modules, module).device, &HostGpus::cpu) !=
               hosts.end();
  });
}

// Keeps the best for each slots, in the order of the ways.
void keep_trial(std::vector<StreamTrial>& trials, const StreamTrial& trial) {
  const auto same = std::ranges::find_if(
      trials, [&](const StreamTrial& t) { return t.way.slots == trial.way.slots; });
  if (same == trials.end()) {
    trials.push_back(trial);
  } else if (trial.is_better_than(*same)) {
    *same = trial;
  }
}

// With room to stream the experts that are left for the CPU prompts may be faster, but tokens are
// slower, as fewer others fit. `hosts`: whose experts are open; `all`: also those that have all of
// their modules.
class ExpertSearch {
 public:
  ExpertSearch(const PricedModel& model, const MemoryFormulas& formulas, const Hosts& hosts,
               const Hosts& all)
      : model_(model), formulas_(formulas), hosts_(hosts), all_(all) {}

  FoundPlacement run(Placement base) {
    for (const HostGpus& host : hosts_) take_late_to_cpu(model_, host, base);
    const std::vector<StreamWay> ways = stream_ways(model_);
    std::optional<Placement> best;
    std::optional<StreamTrial> cost;
    std::vector<StreamTrial> trials;
    Placement tried = base;
    for (const StreamWay& way : ways) {
      for (bool by_use : {false, true}) {
        if (by_use && model_.profile == nullptr) continue;
        tried = base;
        assume_streams(model_, tried.streams, way);
        if (!fill(by_use, tried)) continue;
        if (!experts_on_cpu(model_, tried, hosts_)) {
          if (way.slots) continue;
          return {tried, trials};
        }
        const std::optional<StreamTrial> trial = priced(way, tried);
        if (!trial) continue;
        keep_trial(trials, *trial);
        // A rule may want streams whatever they take.
        const bool wanted = cost && !cost->way.slots && wants_streams(model_, tried);
        if (cost && !wanted && !trial->is_better_than(*cost)) continue;
        cost = trial;
        best = tried;
      }
    }
    if (!best) {
      assume_streams(model_, tried.streams, ways.front());
      return {tried, trials};
    }
    for (StreamTrial& trial : trials) trial.chosen = trial.way.slots == cost->way.slots;
    take_way(model_, *best, cost->way);
    return {*best, trials};
  }

 private:
  bool fill(bool by_use, Placement& tried) const {
    for (const HostGpus& host : all_) {
      if (!fits(model_, formulas_, tried, host)) return false;
    }
    for (const HostGpus& host : hosts_) {
      fill_with_experts(model_, formulas_, host, by_use, tried);
    }
    return true;
  }

  // Nothing where no pass would stream.
  std::optional<StreamTrial> priced(const StreamWay& way, Placement placement) const {
    take_way(model_, placement, way);
    if (way.slots && placement.streams.tokens == 0) return std::nullopt;
    DiagSink unheard;
    keep_states(model_, placement, unheard);
    return StreamTrial{way, gpu_expert_use(placement), price(model_, placement)};
  }

  const PricedModel& model_;
  const MemoryFormulas& formulas_;
  const Hosts& hosts_;
  const Hosts& all_;
};

FoundPlacement fill_hosts(const PricedModel& model, const MemoryFormulas& formulas, Hosts hosts,
                          Placement placement, std::vector<TeamTrial>& teams) {
  assume_streams(model, placement.streams, stream_ways(model).front());
  const Hosts all = hosts;
  std::erase_if(hosts, [&](const HostGpus& host) {
    Placement spread = placement;
    const bool fewer = fit_on_fewer(model, formulas, host, spread);
    if (!fewer) place_early(model, host, spread);
    if (split_where_faster(model, formulas, host, spread, teams)) {
      placement = std::move(spread);
      return true;
    }
    if (fewer) placement = std::move(spread);
    return fewer;
  });
  for (const HostGpus& host : hosts) place_early(model, host, placement);
  choose_experts(model, placement);
  std::erase_if(hosts, [&](const HostGpus& host) {
    if (fits(model, formulas, placement, host)) return false;
    drop_until_fits(model, formulas, host, placement);
    return true;
  });
  if (hosts.empty()) return {placement, {}};
  return ExpertSearch(model, formulas, hosts, all).run(std::move(placement));
}

// Where nothing that cannot run is moved.
FoundPlacement place_open(const PricedModel& model) {
  std::vector<const ir::Module*> open;
  FoundPlacement found{placed_by_rules(model, open), {}};
  if (!open.empty() && (has_hosts(model.target) || model.check.target_given)) {
    const Result<MemoryFormulas> formulas = MemoryFormulas::make(model);
    if (has_hosts(model.target)) {
      spread_over_hosts(model, formulas ? &*formulas : nullptr, open, found.placement);
    }
    Hosts hosts;
    if (model.check.target_given) hosts = hosts_with_gpus(model, found.placement, open);
    if (formulas && !hosts.empty()) {
      std::vector<TeamTrial> teams;
      found = fill_hosts(model, *formulas, std::move(hosts), std::move(found.placement), teams);
      found.teams = std::move(teams);
    }
  }
  choose_experts(model, found.placement);
  return found;
}

}  // namespace

FoundPlacement find_placement(const PricedModel& model, DiagSink& diags) {
  FoundPlacement found;
  if (!model.check.only && model.target.gpus.empty() && !has_hosts(model.target)) {
    found.placement = all_on_cpu(model, diags);
  } else {
    found = place_open(model);
    if (!model.check.only) keep_runnable(model, found.placement, diags);
    if (model.check.only && model.check.target_given) keep_states(model, found.placement, diags);
  }
  const std::string note = settle_streams(model, found.placement, found.trials);
  if (!note.empty()) diags.note({}, "", note);
  const std::string slots = choose_slots(model, found.placement);
  if (!slots.empty()) diags.note({}, "", slots);
  const std::string refusal = team_refusal(found.teams);
  if (!refusal.empty() && model.check.dialect == rules::Dialect::Ktx) diags.note({}, "", refusal);
  return found;
}

}  // namespace ktx::passes
