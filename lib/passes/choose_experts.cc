#include "lib/passes/choose_experts.h"

#include <algorithm>
#include <map>
#include <set>

#include "lib/passes/expert_groups.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

// The most used of those that are not taken, in rising order.
std::vector<int32_t> most_used(const CompileState& state, const ir::Module& module, int32_t count,
                               const std::set<int32_t>& taken) {
  const int32_t all = std::get<ir::ExpertsInfo>(module.info).experts;
  std::vector<int32_t> chosen;
  for (int32_t expert : plan::experts_by_use(state.expert_profile.get(), module.layer, all)) {
    if (std::ssize(chosen) < count && !taken.contains(expert)) chosen.push_back(expert);
  }
  std::ranges::sort(chosen);
  return chosen;
}

void choose(const CompileState& state, ir::Module& module) {
  const int32_t all = std::get<ir::ExpertsInfo>(module.info).experts;
  std::set<int32_t> taken;
  for (const ir::ExpertSet& set : module.decision.expert_sets) {
    taken.insert(set.experts.begin(), set.experts.end());
  }
  for (ir::ExpertSet& set : module.decision.expert_sets) {
    if (set.experts.empty()) {
      set.experts = most_used(state, module, set.count, taken);
      taken.insert(set.experts.begin(), set.experts.end());
    }
    set.use = static_cast<float>(
        plan::expert_use(state.expert_profile.get(), module.layer, set.experts, all));
  }
}

// Sets on the stack's own device are no sets, and those on one device are one.
void join_sets(ir::Decision& decision) {
  std::vector<ir::ExpertSet> joined;
  for (ir::ExpertSet& set : decision.expert_sets) {
    if (set.device == decision.device) continue;
    const auto same = std::ranges::find(joined, set.device, &ir::ExpertSet::device);
    if (same == joined.end()) {
      joined.push_back(std::move(set));
      continue;
    }
    same->experts.insert(same->experts.end(), set.experts.begin(), set.experts.end());
    std::ranges::sort(same->experts);
    same->count += set.count;
    same->use = std::min(1.0f, same->use + set.use);
  }
  decision.expert_sets = std::move(joined);
}

}  // namespace

void choose_experts(CompileState& state) {
  std::map<int32_t, std::string> attention;  // its device, by layer
  for (const ir::Module& module : state.modules.modules) {
    if (ir::kind_of(module.role) == ir::Kind::Attention) {
      attention[module.layer] = module.decision.device;
    }
  }
  for (ir::Module& module : state.modules.modules) {
    ir::Decision& decision = module.decision;
    if (decision.expert_sets.empty()) continue;
    choose(state, module);
    for (ir::ExpertSet& set : decision.expert_sets) {
      const std::string& near = attention[module.layer];
      if (set.device == "auto" && !near.empty() && near != "auto") set.device = near;
    }
    join_sets(decision);
  }
}

void split_experts(const CompileState& state, ir::Module& experts, const std::string& device,
                   int32_t count) {
  const int32_t all = std::get<ir::ExpertsInfo>(experts.info).experts;
  ir::Decision& decision = experts.decision;
  decision.expert_sets.clear();
  decision.device = count >= all ? device : target::cpu_beside(device);
  if (count <= 0 || count >= all) return;
  decision.expert_sets.push_back({device, {}, count, 0});
  choose(state, experts);
}

}  // namespace ktx::passes
