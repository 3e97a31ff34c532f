#include "lib/passes/placement/divide_experts.h"

#include <algorithm>
#include <span>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/cost/price.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/placement/choose_experts.h"
#include "lib/plan/expert_profile.h"

namespace ktx::passes {
namespace {

bool can_be_divided(const ir::Module& module, const ModulePlace& place) {
  return module.role == ir::Role::Experts && place.splits.empty() &&
         module.decision.deferred == 0 && place.experts > 1 &&
         std::ranges::all_of(module.params, [&](const ir::Param& param) {
           return experts_of(module, param, {0}).ok();
         });
}

// By host: of the weights of these modules.
std::vector<double> shares_of(const PricedModel& model, const Placement& placement,
                              const std::vector<const ir::Module*>& modules) {
  std::vector<double> shares(model.target.hosts.size());
  double all = 0;
  for (const ir::Module* module : modules) {
    const auto bytes = static_cast<double>(placed_bytes(*module));
    shares[host_number(model.target, placement.at(model.modules, *module).device)] += bytes;
    all += bytes;
  }
  for (double& share : shares) share /= std::max(all, 1.0);
  return shares;
}

void divide(const PricedModel& model, const ir::Module& module, const std::vector<double>& shares,
            ModulePlace& place) {
  const size_t own = host_number(model.target, place.device);
  std::vector<double> from_own = shares;  // with the module's host first
  std::swap(from_own[0], from_own[own]);
  const auto dealt = deal_experts(model.profile, module.layer, place.experts, from_own);
  for (size_t i = 1; i < dealt.size(); ++i) {
    if (dealt[i].empty()) continue;
    const size_t host = i == own ? 0 : i;
    place.splits.push_back({DeviceId{host == 0 ? "" : model.target.hosts[host].name}, dealt[i],
                            static_cast<int32_t>(dealt[i].size()), 0});
  }
}

}  // namespace

std::vector<std::vector<int32_t>> deal_experts(const plan::ExpertProfile* profile, int32_t layer,
                                               int32_t experts, const std::vector<double>& shares) {
  std::vector<std::vector<int32_t>> dealt(shares.size());
  std::vector<double> loads(shares.size());
  for (const int32_t expert : plan::experts_by_use(profile, layer, experts)) {
    const double use = plan::expert_use(profile, layer, {&expert, 1}, experts);
    size_t best = 0;
    const auto load = [&](size_t host) {
      return (loads[host] + std::max(use, 1e-9)) / std::max(shares[host], 1e-9);
    };
    for (size_t host = 1; host < shares.size() && !dealt[0].empty(); ++host) {
      if (shares[host] > 0 && load(host) < load(best)) best = host;
    }
    loads[best] += std::max(use, 1e-9);
    dealt[best].push_back(expert);
  }
  int32_t next = 0;
  for (std::vector<int32_t>& some : dealt) {
    // All alike: runs of them, which are easier to read.
    if (!profile) std::ranges::generate(some, [&] { return next++; });
    std::ranges::sort(some);
  }
  return dealt;
}

void divide_experts(const PricedModel& model, const MemoryFormulas& formulas,
                    const std::vector<const ir::Module*>& open, Placement& placement) {
  std::vector<const ir::Module*> experts;
  for (const ir::Module* module : open) {
    if (can_be_divided(*module, placement.at(model.modules, *module))) experts.push_back(module);
  }
  if (experts.empty()) return;
  const ConversationTime whole = price(model, placement);
  if (whole.token == 0) return;  // some rate is not known
  const std::vector<double> shares = shares_of(model, placement, experts);
  Placement divided = placement;
  for (const ir::Module* module : experts) {
    divide(model, *module, shares, divided.at(model.modules, *module));
  }
  choose_experts(model, divided);
  const ConversationTime time = price(model, divided);
  if (time.token == 0 || time.seconds() >= whole.seconds()) return;
  const Result<Estimate> memory = memory_of(model, formulas, divided);
  if (!memory || std::ranges::any_of(memory->devices, &DeviceUse::too_small)) return;
  placement = std::move(divided);
}

}  // namespace ktx::passes
