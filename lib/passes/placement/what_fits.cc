#include "lib/passes/placement/what_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

bool all_fit(const Estimate& estimate) {
  return std::ranges::none_of(estimate.devices, &DeviceUse::too_small);
}

// "cuda:0 21.9 GiB of 24.00 GiB, cpu ..."
std::string uses(const Estimate& estimate) {
  std::vector<std::string> parts;
  for (const DeviceUse& use : estimate.devices) {
    if (use.capacity == 0) continue;
    parts.push_back(
        fmt::format("{} {} of {}", use.name, human_bytes(use.total()), human_bytes(use.capacity)));
  }
  return join(parts, ", ");
}

// Layers of which something is on a device; `experts`: routed experts.
std::vector<int32_t> layers_on(const PricedModel& model, const Placement& placement,
                               const DeviceId& device, bool experts) {
  std::set<int32_t> layers;
  for (const ir::Module& module : model.modules.modules) {
    if (module.layer < 0 || module.params.empty()) continue;
    if (experts && module.role != ir::Role::Experts) continue;
    const std::vector<DeviceId> devices = devices_of(placement.at(model.modules, module));
    if (std::ranges::find(devices, device) != devices.end()) layers.insert(module.layer);
  }
  return {layers.begin(), layers.end()};
}

struct Move {
  const PricedModel& model;
  const MemoryFormulas& formulas;
  const Placement& now;
  DeviceId from, to;
  bool experts = false;
  std::vector<int32_t> layers;  // rising; the last ones move first

  bool moves(const ir::Module& module, size_t count) const {
    if (experts && module.role != ir::Role::Experts) return false;
    const auto first = layers.end() - static_cast<ptrdiff_t>(count);
    return std::binary_search(first, layers.end(), module.layer);
  }
  Result<Estimate> estimate(size_t count) const {
    Placement moved = now;
    for (const ir::Module& module : model.modules.modules) {
      if (!moves(module, count)) continue;
      ModulePlace& place = moved.at(model.modules, module);
      if (place.device == from) place.device = to;
      // Its other experts may have been there already.
      std::erase_if(place.splits, [&](const ExpertSplit& split) {
        return split.device == from || split.device == place.device;
      });
    }
    return memory_of(model, formulas, moved);
  }
  bool enough(size_t count) const {
    const auto now = estimate(count);
    return now && std::ranges::none_of(now->devices, [&](const DeviceUse& use) {
             return use.name == to_string(from) && use.too_small();
           });
  }
  uint64_t bytes(size_t count) const {
    uint64_t sum = 0;
    for (const ir::Module& module : model.modules.modules) {
      if (!moves(module, count)) continue;
      sum += bytes_on(now.at(model.modules, module), from, placed_bytes(module));
    }
    return sum;
  }
  // The fewest layers; "" where all of them are too few, or there is no room for them.
  std::string remedy() const {
    if (layers.empty() || !enough(layers.size())) return "";
    size_t low = 1, high = layers.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (enough(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const auto fitting = estimate(low);
    if (!fitting || !all_fit(*fitting)) return "";
    const int32_t first = layers[layers.size() - low];
    return fmt::format(
        "{} {} on {} make it fit ({} of {} layers, {} from {}): {}",
        experts ? "the experts of layers" : "layers",
        low == 1 ? fmt::format("{}", first) : fmt::format("{}..{}", first, layers.back()),
        to_string(to), low, layers.size(), human_bytes(bytes(low)), to_string(from),
        uses(*fitting));
  }
};

// Devices of the same host, the CPU first, then GPUs by number.
std::vector<DeviceId> others(const target::Target& target, const DeviceId& device) {
  std::vector<DeviceId> all{device.cpu_beside()};
  const size_t gpus = gpus_of(target, host_number(target, device)).size();
  for (size_t i = 0; i < gpus; ++i) {
    all.push_back({device.host, DeviceId::Kind::Cuda, static_cast<int>(i)});
  }
  std::erase(all, device);
  return all;
}

}  // namespace

std::string fits_without_rules(const CompileState& state) {
  if (state.rules.rules.empty()) return "";
  CompileState bare = state;
  DiagSink unheard;
  bare.diags = &unheard;
  bare.rules = {};
  bare.matched = {};
  bare.fact = Fact::Built;
  bare.stream_slots.reset();
  bare.stream_trials.clear();
  bare.team_trials.clear();
  for (ir::Module& module : bare.modules.modules) module.decision = {};
  PassOptions options;
  options.stop_after = "place-devices";
  options.verify_each = false;
  if (!run_passes(bare, options).ok()) return "";
  const auto estimate = memory_of(bare);
  if (!estimate || !all_fit(*estimate)) return "";
  const auto& files = state.rules.files;
  const std::string what =
      files.size() == 1 ? printable(files[0].path) : fmt::format("these {} files", files.size());
  return fmt::format("without {} it fits: {}", what, uses(*estimate));
}

std::string fits_with_moves(const CompileState& state, const MemoryFormulas& formulas,
                            const std::string& device) {
  const PricedModel model(state);
  const Placement now = placement_of(state);
  const DeviceId from = target::device_id(device);
  for (const bool experts : {true, false}) {
    for (const DeviceId& to : others(state.target, from)) {
      const Move move{
          model, formulas, now, from, to, experts, layers_on(model, now, from, experts)};
      if (const std::string text = move.remedy(); !text.empty()) return text;
    }
  }
  return "";
}

}  // namespace ktx::passes
