#include "lib/passes/placement/placed_by_rules.h"

#include <algorithm>

#include "lib/passes/placement/host_gpus.h"
#include "lib/passes/placement/split_over_gpus.h"
#include "lib/rules/device_name.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

using ir::Role;

// By module: a name of the rules' grammar (lib/rules/device_name.h), or "" where nothing is named.
std::vector<std::string> devices_of_rules(const ir::ModuleGraph& modules) {
  std::vector<std::string> named;
  std::vector<std::string> of_layer(static_cast<size_t>(std::max(modules.facts.layers, 0)));
  const auto in_layer = [&](const ir::Module& module) {
    return module.layer >= 0 && module.layer < std::ssize(of_layer);
  };
  for (const ir::Module& module : modules.modules) {
    named.push_back(module.decision.device);
    const bool attention = ir::kind_of(module.role) == ir::Kind::Attention;
    if (attention && in_layer(module)) {
      of_layer[static_cast<size_t>(module.layer)] = module.decision.device;
    }
  }
  for (size_t i = 0; i < named.size(); ++i) {
    const ir::Module& module = modules.modules[i];
    std::string& device = named[i];
    const bool experts = module.role == Role::Experts;
    if (!device.empty()) continue;
    if (module.parent >= 0 && !experts) device = named[static_cast<size_t>(module.parent)];
    if (!device.empty() || of_layer.empty()) continue;
    if (in_layer(module) && !experts) {
      device = of_layer[static_cast<size_t>(module.layer)];
    } else if (module.role == Role::FinalNorm || module.role == Role::Head ||
               module.role == Role::ScoreDense || module.role == Role::ScoreHead ||
               module.role == Role::TextUpProj || module.role == Role::TextDownProj) {
      // Logits are wanted on the first host, and may share the embedding's table.
      if (target::is_first_host(of_layer.back())) device = of_layer.back();
    }
  }
  return named;
}

// These GPUs of the first host; all of the target where none are named.
std::vector<DeviceId> named_gpus(const PricedModel& model, const std::vector<int>& named) {
  std::vector<DeviceId> gpus;
  for (const int gpu : named) gpus.push_back({"", DeviceId::Kind::Cuda, gpu});
  for (size_t i = 0; named.empty() && i < model.target.gpus.size(); ++i) {
    gpus.push_back({"", DeviceId::Kind::Cuda, static_cast<int>(i)});
  }
  // When no target says how many there are.
  if (gpus.empty() && !model.check.target_given) gpus.push_back({"", DeviceId::Kind::Cuda, 0});
  return gpus;
}

// What the module's rule divides; a rule that does not say: all kinds.
DividedKinds kinds_of_rule(const PricedModel& model, const ir::Module& module) {
  const int32_t number = module.decision.rule;
  if (number < 0) return kAllDivided;
  const auto& splits = model.rules.rules[static_cast<size_t>(number)].replace.splits;
  if (splits.empty()) return kAllDivided;
  using rules::Split;
  const auto has = [&](Split split) { return std::ranges::find(splits, split) != splits.end(); };
  DividedKinds kinds;
  const auto set = [&](DividedKind kind, Split split) {
    kinds.set(static_cast<size_t>(kind), has(split));
  };
  set(DividedKind::Attention, Split::Heads);
  set(DividedKind::States, Split::Heads);
  set(DividedKind::FeedForward, Split::Columns);
  set(DividedKind::Head, Split::Columns);
  set(DividedKind::Experts, Split::Experts);
  return kinds;
}

}  // namespace

Placement placed_by_rules(const PricedModel& model, std::vector<const ir::Module*>& open) {
  Placement placement{{}, model.streams};
  const std::vector<std::string> named = devices_of_rules(model.modules);
  for (size_t i = 0; i < named.size(); ++i) {
    const ir::Module& module = model.modules.modules[i];
    const auto device = rules::parse_device(named[i]);
    ModulePlace& place = placement.of_module.emplace_back(place_of(module));
    place.device = target::device_id(named[i]);
    using Kind = rules::DeviceSpec::Kind;
    if (named[i].empty() || (device && device->kind == Kind::Auto)) open.push_back(&module);
    if (!device || (device->kind != Kind::Spread && device->kind != Kind::Split)) continue;
    const std::vector<DeviceId> gpus = named_gpus(model, device->gpus);
    if (gpus.empty()) {
      place.device = {};
    } else if (device->kind == Kind::Split) {
      place = split_over_gpus(model.modules, module, gpus, kinds_of_rule(model, module));
    } else {
      place.device = gpu_of_layer(model.target, module, {0, model.modules.facts.layers}, gpus);
    }
  }
  return placement;
}

}  // namespace ktx::passes
