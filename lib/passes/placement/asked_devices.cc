#include "lib/passes/placement/asked_devices.h"

#include <algorithm>

#include "lib/target/host_device.h"

namespace ktx::passes {

using ir::Role;

std::vector<std::string> asked_devices(const ir::ModuleGraph& modules) {
  std::vector<std::string> asked;
  std::vector<std::string> of_layer(static_cast<size_t>(std::max(modules.facts.layers, 0)));
  const auto in_layer = [&](const ir::Module& module) {
    return module.layer >= 0 && module.layer < std::ssize(of_layer);
  };
  for (const ir::Module& module : modules.modules) {
    asked.push_back(module.decision.device);
    const bool attention = ir::kind_of(module.role) == ir::Kind::Attention;
    if (attention && in_layer(module)) {
      of_layer[static_cast<size_t>(module.layer)] = module.decision.device;
    }
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const ir::Module& module = modules.modules[i];
    std::string& device = asked[i];
    const bool experts = module.role == Role::Experts;
    if (!device.empty()) continue;
    if (module.parent >= 0 && !experts) device = asked[static_cast<size_t>(module.parent)];
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
  return asked;
}

}  // namespace ktx::passes
