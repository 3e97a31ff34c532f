#include "lib/passes/placement/host_gpus.h"

#include <algorithm>

#include "lib/passes/cost/target_devices.h"
#include "lib/target/gpu_generation.h"

namespace ktx::passes {

bool is_embedding(const ir::Module& module) {
  return ir::kind_of(module.role) == ir::Kind::Embedding;
}

const DeviceId& HostGpus::gpu_of(const target::Target& target, const ir::Module& module) const {
  return gpu_of_layer(target, module, layers, gpus);
}

std::vector<HostGpus> hosts_with_gpus(const PricedModel& model, const Placement& placement,
                                      const std::vector<const ir::Module*>& open) {
  std::vector<HostGpus> all;
  for (size_t number = 0; number < std::max<size_t>(model.target.hosts.size(), 1); ++number) {
    HostGpus host;
    if (number > 0) host.cpu.host = model.target.hosts[number].name;
    const std::vector<target::GpuTarget>& gpus = gpus_of(model.target, number);
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (target::too_old(gpus[i])) continue;
      host.gpus.push_back({host.cpu.host, DeviceId::Kind::Cuda, static_cast<int>(i)});
    }
    int32_t last = -1;
    for (const ir::Module* module : open) {
      if (placement.at(model.modules, *module).device != host.cpu) continue;
      host.open.push_back(module);
      if (module->layer < 0) continue;
      host.layers.first = last < 0 ? module->layer : std::min(host.layers.first, module->layer);
      last = std::max(last, module->layer);
    }
    host.layers.count = last < 0 ? 0 : last - host.layers.first + 1;
    if (!has_hosts(model.target)) host.layers = {0, model.modules.facts.layers};
    if (!host.gpus.empty() && !host.open.empty()) all.push_back(std::move(host));
  }
  return all;
}

const DeviceId& gpu_of_layer(const target::Target& target, const ir::Module& module,
                             const LayerRun& layers, std::span<const DeviceId> gpus) {
  const double at = module.layer >= 0
                        ? (module.layer - layers.first + 0.5) / std::max(layers.count, 1)
                    : is_embedding(module) ? 0.0
                                           : 1.0;
  std::vector<double> weights;
  double total = 0;
  for (const DeviceId& gpu : gpus) {
    const target::GpuTarget* const facts = passes::gpu_of(target, gpu);
    weights.push_back(facts != nullptr ? static_cast<double>(facts->memory_bytes) : 0);
    total += weights.back();
  }
  if (total == 0 || std::count(weights.begin(), weights.end(), 0.0) > 0) {
    std::fill(weights.begin(), weights.end(), 1.0);
    total = static_cast<double>(weights.size());
  }
  double sum = 0;
  for (size_t i = 0; i < gpus.size(); ++i) {
    sum += weights[i] / total;
    if (at < sum) return gpus[i];
  }
  return gpus.back();
}

}  // namespace ktx::passes
