#include "lib/passes/divide_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lib/passes/choose_experts.h"
#include "lib/passes/conversation_time.h"
#include "lib/passes/estimate.h"
#include "lib/passes/expert_groups.h"
#include "lib/passes/host_links.h"
#include "lib/plan/expert_profile.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

int32_t experts_of_layer(const ir::Module& experts) {
  return std::get<ir::ExpertsInfo>(experts.info).experts;
}

bool can_be_divided(const ir::Module& module) {
  return module.role == ir::Role::Experts && module.decision.expert_sets.empty() &&
         module.decision.deferred == 0 && experts_of_layer(module) > 1 &&
         std::ranges::all_of(module.params, [&](const ir::Param& param) {
           return experts_of(module, param, {0}).ok();
         });
}

// By host: of the weights of these modules.
std::vector<double> shares_of(const CompileState& state, const std::vector<ir::Module*>& modules) {
  std::vector<double> shares(state.target.hosts.size());
  double all = 0;
  for (const ir::Module* module : modules) {
    const auto bytes = static_cast<double>(placed_bytes(*module));
    shares[host_number(state.target, module->decision.device)] += bytes;
    all += bytes;
  }
  for (double& share : shares) share /= std::max(all, 1.0);
  return shares;
}

void divide(const CompileState& state, ir::Module& module, const std::vector<double>& shares) {
  const size_t own = host_number(state.target, module.decision.device);
  std::vector<double> from_own = shares;  // with the module's host first
  std::swap(from_own[0], from_own[own]);
  const auto dealt =
      deal_experts(state.expert_profile.get(), module.layer, experts_of_layer(module), from_own);
  for (size_t i = 1; i < dealt.size(); ++i) {
    if (dealt[i].empty()) continue;
    const size_t host = i == own ? 0 : i;
    const std::string device =
        host == 0 ? "cpu" : target::device_on(state.target.hosts[host].name, "cpu");
    module.decision.expert_sets.push_back(
        {device, dealt[i], static_cast<int32_t>(dealt[i].size()), 0});
  }
}

bool fits(const CompileState& state) {
  const Result<Estimator> estimator = Estimator::make(state);
  if (!estimator) return false;
  const Result<Estimate> now = estimator->run(state);
  return now && std::ranges::none_of(now->devices, &DeviceUse::too_small);
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

std::string division_text(const ir::ModuleGraph& modules) {
  int64_t layers = 0;
  size_t most = 0;
  for (const ir::Module& module : modules.modules) {
    const size_t hosts = module.role == ir::Role::Experts ? cpu_groups(module) : 0;
    layers += hosts > 1 ? 1 : 0;
    most = std::max(most, hosts);
  }
  if (layers == 0) return "";
  return fmt::format("the experts of {} layer{} are on {} hosts", layers, layers == 1 ? "" : "s",
                     most);
}

void divide_experts(CompileState& state, const std::vector<ir::Module*>& open) {
  std::vector<ir::Module*> experts;
  for (ir::Module* module : open) {
    if (can_be_divided(*module)) experts.push_back(module);
  }
  if (experts.empty()) return;
  const ConversationTime whole = conversation_time(state);
  if (whole.token == 0) return;  // some rate is not known
  const std::vector<double> shares = shares_of(state, experts);
  for (ir::Module* module : experts) divide(state, *module, shares);
  choose_experts(state);
  const ConversationTime divided = conversation_time(state);
  if (divided.token > 0 && divided.seconds() < whole.seconds() && fits(state)) return;
  for (ir::Module* module : experts) module->decision.expert_sets.clear();
}

}  // namespace ktx::passes
