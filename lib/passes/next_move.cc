#include "lib/passes/next_move.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lib/passes/expert_groups.h"
#include "lib/passes/launched_steps.h"
#include "lib/passes/pass_time.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

// So many layers of experts at most, where the memory for them is not there.
constexpr size_t kMostLayers = 4;

// Numbers of the modules, in the order of the layers.
std::vector<size_t> experts_beside(const CompileState& state, const std::string& device) {
  std::map<int32_t, std::string> attention;
  const auto& modules = state.modules.modules;
  for (const ir::Module& module : modules) {
    if (ir::kind_of(module.role) == ir::Kind::Attention) {
      attention[module.layer] = module.decision.device;
    }
  }
  std::vector<size_t> all;
  for (size_t i = 0; i < modules.size(); ++i) {
    const bool experts = modules[i].role == ir::Role::Experts &&
                         modules[i].decision.device == target::cpu_beside(device) &&
                         cpu_groups(modules[i]) < 2;
    if (experts && attention[modules[i].layer] == device) all.push_back(i);
  }
  return all;
}

// ": decode +9 %", or "" where a rate is not known.
std::string gain(const CompileState& state, const Estimate& estimate, const std::string& device,
                 const std::vector<size_t>& moved) {
  if (!estimate.token.known) return "";
  CompileState copy = state;
  for (const size_t i : moved) {
    copy.modules.modules[i].decision.device = device;
    copy.modules.modules[i].decision.expert_sets.clear();
  }
  const auto graph = launched_steps(copy);
  if (!graph) return "";
  const PassTime token = predict_pass(*graph, copy.target, {});
  return fmt::format(": decode {:+.0f} %", 100 * (estimate.token.seconds / token.seconds - 1));
}

}  // namespace

std::string next_best_move(const CompileState& state, const Estimate& estimate) {
  for (const DeviceUse& use : estimate.devices) {
    if (target::is_cpu(use.name) || use.capacity == 0 || use.too_small()) continue;
    const uint64_t left = use.capacity - use.total();
    std::vector<size_t> moved;
    uint64_t bytes = 0;
    bool fits = true;
    for (const size_t i : experts_beside(state, use.name)) {
      const ir::Module& experts = state.modules.modules[i];
      const uint64_t more = bytes_on(experts, experts.decision.device, placed_bytes(experts));
      const bool room = bytes + more <= left;
      if (!moved.empty() && !room && (fits || moved.size() >= kMostLayers)) break;
      fits = room;
      moved.push_back(i);
      bytes += more;
    }
    if (moved.empty()) continue;
    const std::string layers =
        fmt::format("{} more layer{} of experts, {} first", moved.size(),
                    moved.size() == 1 ? "" : "s", state.modules.modules[moved[0]].path);
    const std::string room =
        fits ? fmt::format("{} has {} left for ", use.name, human_bytes(left))
             : fmt::format("with {} more, {} would hold ", human_bytes(bytes - left), use.name);
    return room + layers + gain(state, estimate, use.name, moved) + "\n";
  }
  return "";
}

}  // namespace ktx::passes
