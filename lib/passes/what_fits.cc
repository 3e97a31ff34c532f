#include "lib/passes/what_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/passes/expert_groups.h"
#include "lib/passes/host_links.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

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
std::vector<int32_t> layers_on(const CompileState& state, const std::string& device, bool experts) {
  std::set<int32_t> layers;
  for (const ir::Module& module : state.modules.modules) {
    if (module.layer < 0 || module.params.empty()) continue;
    if (experts && module.role != ir::Role::Experts) continue;
    const std::vector<std::string> devices = devices_of(module);
    if (std::ranges::find(devices, device) != devices.end()) layers.insert(module.layer);
  }
  return {layers.begin(), layers.end()};
}

struct Move {
  const CompileState& state;
  const Estimator& estimator;
  std::string from, to;
  bool experts = false;
  std::vector<int32_t> layers;  // rising; the last ones move first

  bool moves(const ir::Module& module, size_t count) const {
    if (experts && module.role != ir::Role::Experts) return false;
    const auto first = layers.end() - static_cast<ptrdiff_t>(count);
    return std::binary_search(first, layers.end(), module.layer);
  }
  Result<Estimate> estimate(size_t count) const {
    CompileState moved = state;
    for (ir::Module& module : moved.modules.modules) {
      if (!moves(module, count)) continue;
      if (module.decision.device == from) module.decision.device = to;
      std::erase_if(module.decision.expert_sets,
                    [&](const ir::ExpertSet& set) { return set.device == from; });
      // Its other experts may have been there already.
      std::erase_if(module.decision.expert_sets,
                    [&](const ir::ExpertSet& set) { return set.device == module.decision.device; });
    }
    return estimator.run(moved);
  }
  bool enough(size_t count) const {
    const auto now = estimate(count);
    return now && std::ranges::none_of(now->devices, [&](const DeviceUse& use) {
             return use.name == from && use.too_small();
           });
  }
  uint64_t bytes(size_t count) const {
    uint64_t sum = 0;
    for (const ir::Module& module : state.modules.modules) {
      if (moves(module, count)) sum += bytes_on(module, from, placed_bytes(module));
    }
    return sum;
  }
  // The fewest layers; "" where all of them are too few, or there is no room for them.
  std::string text() const {
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
        low == 1 ? fmt::format("{}", first) : fmt::format("{}..{}", first, layers.back()), to, low,
        layers.size(), human_bytes(bytes(low)), from, uses(*fitting));
  }
};

// Devices of the same host, the CPU first, then GPUs by number.
std::vector<std::string> others(const CompileState& state, const std::string& device) {
  std::vector<std::string> all;
  const std::string cpu = target::cpu_beside(device);
  if (cpu != device) all.push_back(cpu);
  const size_t gpus = gpus_of(state.target, host_number(state.target, device)).size();
  for (size_t i = 0; i < gpus; ++i) {
    std::string gpu = target::device_on(target::host_of(device), fmt::format("cuda:{}", i));
    if (gpu != device) all.push_back(std::move(gpu));
  }
  return all;
}

}  // namespace

std::string fits_without_rules(const CompileState& state, const Estimator& estimator) {
  if (state.rules.rules.empty()) return "";
  CompileState bare = state;
  DiagSink unheard;
  bare.diags = &unheard;
  bare.rules = {};
  bare.matched = {};
  bare.fact = Fact::Built;
  bare.stream_slots.reset();
  bare.stream_trials.clear();
  for (ir::Module& module : bare.modules.modules) module.decision = {};
  PassOptions options;
  options.stop_after = "place-devices";
  options.verify_each = false;
  if (!run_passes(bare, options).ok()) return "";
  const auto estimate = estimator.run(bare);
  if (!estimate || !all_fit(*estimate)) return "";
  const auto& files = state.rules.files;
  const std::string what =
      files.size() == 1 ? printable(files[0].path) : fmt::format("these {} files", files.size());
  return fmt::format("without {} it fits: {}", what, uses(*estimate));
}

std::string fits_with_moves(const CompileState& state, const Estimator& estimator,
                            const std::string& device) {
  for (const bool experts : {true, false}) {
    for (const std::string& to : others(state, device)) {
      const Move move{state, estimator, device, to, experts, layers_on(state, device, experts)};
      if (const std::string text = move.text(); !text.empty()) return text;
    }
  }
  return "";
}

}  // namespace ktx::passes
