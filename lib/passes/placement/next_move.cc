#include "lib/passes/placement/next_move.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/launched_steps.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

// So many layers of experts at most, where the memory for them is not there.
constexpr size_t kMostLayers = 4;

// In the order of the layers.
std::vector<const ir::Module*> experts_beside(const PricedModel& model, const Placement& now,
                                              const DeviceId& device) {
  const auto attention = attention_devices(model.modules, now);
  std::vector<const ir::Module*> all;
  for (const ir::Module& module : model.modules.modules) {
    const ModulePlace& place = now.at(model.modules, module);
    const auto near = attention.find(module.layer);
    if (module.role == ir::Role::Experts && place.device == device.cpu_beside() &&
        cpu_groups(place) < 2 && near != attention.end() && near->second == device) {
      all.push_back(&module);
    }
  }
  return all;
}

// ": decode +9 %", or "" where a rate is not known.
std::string gain(const PricedModel& model, const Placement& now, const Estimate& estimate,
                 const DeviceId& device, const std::vector<const ir::Module*>& moved) {
  if (!estimate.token.known) return "";
  Placement then = now;
  for (const ir::Module* module : moved) {
    ModulePlace& place = then.at(model.modules, *module);
    place.device = device;
    place.splits.clear();
  }
  const auto graph = launched_steps(model, then);
  if (!graph) return "";
  const double before = estimate.token.seconds - estimate.token.disk_seconds;
  const ForwardTime token = predict_forward(*graph, model.target, {});
  return fmt::format(": decode {:+.0f} %", 100 * (before / token.seconds - 1));
}

}  // namespace

std::string next_best_move(const CompileState& state, const Estimate& estimate) {
  const PricedModel model(state);
  const Placement now = placement_of(state);
  for (const DeviceUse& use : estimate.devices) {
    const DeviceId device = target::device_id(use.name);
    if (device.is_cpu() || use.capacity == 0 || use.too_small()) continue;
    const uint64_t left = use.capacity - use.total();
    std::vector<const ir::Module*> moved;
    uint64_t bytes = 0;
    bool fits = true;
    for (const ir::Module* experts : experts_beside(model, now, device)) {
      const ModulePlace& place = now.at(model.modules, *experts);
      const uint64_t more = bytes_on(place, place.device, placed_bytes(*experts));
      const bool room = bytes + more <= left;
      if (!moved.empty() && !room && (fits || moved.size() >= kMostLayers)) break;
      fits = room;
      moved.push_back(experts);
      bytes += more;
    }
    if (moved.empty()) continue;
    const std::string layers = fmt::format("{} more layer{} of experts, {} first", moved.size(),
                                           moved.size() == 1 ? "" : "s", moved[0]->path);
    const std::string room =
        fits ? fmt::format("{} has {} left for ", use.name, human_bytes(left))
             : fmt::format("with {} more, {} would hold ", human_bytes(bytes - left), use.name);
    return room + layers + gain(model, now, estimate, device, moved) + "\n";
  }
  return "";
}

}  // namespace ktx::passes
