#include "lib/passes/lower/deferred_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/rules/device_name.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

const ir::Module* layer_of(const ir::ModuleGraph& modules, const ir::Module& module) {
  const ir::Module* layer = &module;
  while (layer->role != ir::Role::Layer) {
    if (layer->parent < 0) return nullptr;
    layer = &modules.modules[static_cast<size_t>(layer->parent)];
  }
  return layer;
}

}  // namespace

std::string deferral_obstacle(const ir::ModuleGraph& modules, const ir::Module& module,
                              int32_t deferred) {
  const auto* info = std::get_if<ir::ExpertsInfo>(&module.info);
  if (info == nullptr) return "is no stack of experts";
  if (deferred >= info->top_k) {
    return fmt::format(
        "computes {} experts for a token, and the rule defers {} of them; at least one must stay",
        info->top_k, deferred);
  }
  const ir::Module* layer = layer_of(modules, module);
  if (layer == nullptr) return "is in no layer";
  // What is made of the sum of a layer's experts would be made of another sum.
  for (const ir::Role role : {ir::Role::MlpPostNorm, ir::Role::ExpertsPostNorm}) {
    if (const ir::Module* norm = modules.child(*layer, role)) {
      return fmt::format("gives its sum to {}, a norm: what is added a layer later would miss it",
                         norm->path);
    }
  }
  if (module.parent >= 0 &&
      modules.child(modules.modules[static_cast<size_t>(module.parent)], ir::Role::LatentUpProj)) {
    return "gives its sum to a projection: what is added a layer later would miss it";
  }
  const auto* own = std::get_if<ir::LayerInfo>(&layer->info);
  if ((own && own->output_scale != 1) || modules.child(*layer, ir::Role::LayerInputGate)) {
    return "is in a layer that scales its output: what is added a layer later would miss that";
  }
  return "";
}

int32_t deferred_steps(const ir::ModuleGraph& modules, const ir::Module& experts,
                       const ModulePlace& place) {
  if (experts.decision.deferred == 0) return 0;
  if (experts_on(place, place.device.cpu_beside()) == 0) return 0;
  const auto last =
      std::find_if(modules.modules.rbegin(), modules.modules.rend(),
                   [](const ir::Module& module) { return module.role == ir::Role::Experts; });
  return experts.layer < last->layer ? experts.decision.deferred : 0;
}

std::string deferral_text(const ir::ModuleGraph& modules, const Placement& placement) {
  std::set<int32_t> numbers;
  int32_t top_k = 0, layers = 0;
  for (const ir::Module& module : modules.modules) {
    if (module.role != ir::Role::Experts) continue;
    const int32_t deferred = deferred_steps(modules, module, placement.at(modules, module));
    if (deferred == 0) continue;
    numbers.insert(deferred);
    top_k = std::get<ir::ExpertsInfo>(module.info).top_k;
    ++layers;
  }
  if (layers == 0) return "";
  const std::string some = numbers.size() == 1
                               ? std::to_string(*numbers.begin())
                               : fmt::format("{} to {}", *numbers.begin(), *numbers.rbegin());
  return fmt::format("{} of a token's {} experts are added a layer later, in {} layer{}", some,
                     top_k, layers, layers == 1 ? "" : "s");
}

bool divides_over_hosts(const rules::Replace& replace) {
  std::set<std::string> cpus;
  const bool of_gpu = replace.place && replace.place->kind != rules::DeviceSpec::Kind::Cpu;
  if (!of_gpu) cpus.insert(replace.place ? rules::to_string(*replace.place) : "cpu");
  for (const rules::ExpertsOn& set : replace.experts) {
    if (target::is_cpu(set.device.text)) cpus.insert(set.device.text);
  }
  return cpus.size() > 1;
}

bool is_on_gpu(const rules::Replace& replace) {
  using Kind = rules::DeviceSpec::Kind;
  const bool gpu =
      replace.place && (replace.place->kind == Kind::Cuda || replace.place->kind == Kind::Spread);
  return gpu && std::ranges::none_of(replace.experts, [](const rules::ExpertsOn& set) {
           return set.device.text == "cpu";
         });
}

int32_t deferred_experts(const ir::ModuleGraph& modules, const rules::Replace& replace,
                         const ir::Module& module) {
  const int32_t wanted = replace.deferred_experts;
  if (wanted == 0 || !replace.lossy_allowed || is_on_gpu(replace)) return 0;
  if (divides_over_hosts(replace)) return 0;
  return deferral_obstacle(modules, module, wanted).empty() ? wanted : 0;
}

}  // namespace ktx::passes
