// Checks whether a token changes devices more often than the placement needs. Three shapes:
//
//   D007  a device computes activations beside which it holds no matrix: norms, for example
//   D008  a layer is cut into pieces: matrices of one block on several devices, or more than
//         there and back within the layer
//   D009  layers go back to a device that they have left: 0..9 there, 10..19 here, 20.. there
//
// Each hand-over costs about as much as reading a megabyte from a CPU's memory (forward_time.h).
// Rules that reach no weight (check_reach.cc) cause all of these, and only they are reported
// then.
#include "lib/passes/cost/hand_overs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/lint/rule_reach.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/pass.h"
#include "lib/passes/placement/runnable_placement.h"

namespace ktx::passes {
namespace {

// A layer that hands over to another device and gets the result back.
constexpr int kThereAndBack = 2;

bool has_matrix(const ir::Module& module) {
  return std::any_of(module.params.begin(), module.params.end(),
                     [](const ir::Param& param) { return param.rows * param.matrices > 1; });
}

class HandOverChecker {
 public:
  HandOverChecker(CompileState& state, const HandOvers& found) : state_(state), found_(found) {}

  void run() {
    if (check_idle_devices()) return;
    check_pieces();
    check_order();
  }

 private:
  const std::vector<ir::Module>& modules() const { return state_.modules.modules; }

  SourceLoc place_of_rule(const ir::Module& module) const {
    const int rule = module.decision.rule;
    return rule < 0 ? SourceLoc{} : state_.rules.rules[static_cast<size_t>(rule)].loc;
  }

  // Without a target its automatic placement is unknown.
  bool is_open(const ir::Module& module) const {
    if (!state_.check.only || state_.check.target_given) return false;
    const int rule = module.decision.rule;
    if (module.decision.device != "cpu") return false;
    if (rule < 0) return true;
    const auto& place = state_.rules.rules[static_cast<size_t>(rule)].replace.place;
    return !place || place->kind == rules::DeviceSpec::Kind::Auto;
  }
  bool is_open(int32_t layer) const {
    return std::any_of(modules().begin(), modules().end(), [&](const ir::Module& module) {
      return module.layer == layer && !module.params.empty() && is_open(module);
    });
  }

  std::string price(int count) const {
    return fmt::format("{} hand-overs a token, {:.1f} ms", count, count * kHandOverSeconds * 1e3);
  }

  // Modules that a rule put where no matrix is: of their layer, or at all outside of layers.
  bool check_idle_devices() {
    std::set<std::pair<std::string, int32_t>> holds;  // device and layer; -1: any
    for (const ir::Module& module : modules()) {
      if (!has_matrix(module)) continue;
      holds.emplace(module.decision.device, module.layer);
      holds.emplace(module.decision.device, -1);
    }
    bool reported = false;
    for (const auto& [device, paths] : found_.modules_on) {
      std::vector<const ir::Module*> idle;
      std::set<int32_t> layers;
      for (const ir::Module& module : modules()) {
        // Sums of what others made are on the device of the sum, in the name of the maker.
        if (paths.count(module.path) == 0 || module.decision.device != device) continue;
        if (holds.count({device, module.layer}) > 0) continue;
        if (module.decision.rule < 0 || is_open(module)) continue;
        idle.push_back(&module);
        layers.insert(module.layer);
      }
      if (idle.empty()) continue;
      const auto count =
          std::count_if(found_.all.begin(), found_.all.end(),
                        [&, on = std::string_view(device)](const HandOver& hand_over) {
                          return (hand_over.from == on || hand_over.to == on) &&
                                 layers.count(hand_over.layer) > 0;
                        });
      const auto number = static_cast<int64_t>(idle.size());
      state_.diags
          ->warning(place_of_rule(*idle.front()), "D007",
                    fmt::format("{} computes {} but holds no matrix next to {}: {}", device,
                                count_of(number, "module"), number == 1 ? "it" : "them",
                                price(static_cast<int>(count))))
          .note({}, fmt::format("the modules are {}", and_more(idle.front()->path, number)))
          .help("put them where the matrices before and after them are");
      reported = true;
    }
    return reported;
  }

  // Blocks whose linear layers lie on several devices, by layer; the first of each.
  std::map<int32_t, const ir::Module*> split_blocks() const {
    std::map<int32_t, const ir::Module*> split;
    for (const ir::Module& block : modules()) {
      const ir::Kind kind = ir::kind_of(block.role);
      if (kind != ir::Kind::Attention && kind != ir::Kind::Mlp) continue;
      std::set<std::string> devices;
      for (const ir::ModuleId id : block.children) {
        const ir::Module& part = modules()[static_cast<size_t>(id)];
        if (has_matrix(part)) devices.insert(part.decision.device);
      }
      if (devices.size() > 1) split.emplace(block.layer, &block);
    }
    return split;
  }

  // On how many hosts the layer's experts are, beside its own; 1 at least.
  int expert_hosts(int32_t layer) const {
    for (const ir::Module& module : modules()) {
      if (module.layer != layer || module.role != ir::Role::Experts) continue;
      return std::max(1, static_cast<int>(cpu_groups(place_of(module))) - 1);
    }
    return 1;
  }

  // Several GPUs compute it together: its parts lie on all of them.
  bool is_together(int32_t layer) const {
    return std::ranges::any_of(modules(), [&](const ir::Module& module) {
      return module.layer == layer && !module.decision.team.empty();
    });
  }

  // No rule could spare the way to the CPU and back.
  bool has_cpu_steps(int32_t layer) const {
    return std::ranges::any_of(modules(), [&](const ir::Module& module) {
      return module.layer == layer && !gpu_kernels_compute(module);
    });
  }

  void check_pieces() {
    std::map<int32_t, int> within;
    for (const HandOver& hand_over : found_.all) {
      if (hand_over.within_layer) ++within[hand_over.layer];
    }
    const std::map<int32_t, const ir::Module*> split = split_blocks();
    std::erase_if(within, [&](const auto& entry) {
      const bool few = entry.second <= kThereAndBack * expert_hosts(entry.first);
      const bool whole = (few || has_cpu_steps(entry.first)) && split.count(entry.first) == 0;
      return whole || is_open(entry.first) || is_together(entry.first);
    });
    if (within.empty()) return;
    int total = 0;
    for (const auto& [layer, count] : within) total += count;
    const auto [layer, count] = *within.begin();
    const auto block = split.find(layer);
    const std::string where = block == split.end()
                                  ? fmt::format("blocks of layer {} lie", layer)
                                  : fmt::format("matrices of {} lie", block->second->path);
    const std::vector<const ir::Module*> odd = odd_ones(layer);
    if (odd.empty()) return;
    state_.diags
        ->warning(place_of_rule(*odd.front()), "D008",
                  fmt::format("{} cut into pieces: {} on several devices, and a token goes from "
                              "device to device {} times within the layer ({} in all)",
                              within.size() == 1 ? "a layer is"
                                                 : fmt::format("{} layers are", within.size()),
                              where, count, price(total)))
        .note({}, fmt::format("on {}: {}", odd.front()->decision.device,
                              and_more(odd.front()->path, static_cast<int64_t>(odd.size()))))
        .help("put whole blocks (self_attn, mlp, experts) or whole layers on one device");
  }

  // What has weights on the device with the fewest modules of a layer. Experts elsewhere are
  // usual and come last.
  std::vector<const ir::Module*> odd_ones(int32_t layer) const {
    std::map<std::string, std::vector<const ir::Module*>> devices;
    for (const ir::Module& module : modules()) {
      if (module.layer == layer && !module.params.empty()) {
        devices[module.decision.device].push_back(&module);
      }
    }
    const auto fewest = std::min_element(
        devices.begin(), devices.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (fewest == devices.end()) return {};
    std::stable_partition(
        fewest->second.begin(), fewest->second.end(),
        [](const ir::Module* module) { return module->role != ir::Role::Experts; });
    return fewest->second;
  }

  // Device of each layer's attention: where the layer begins.
  void check_order() {
    std::vector<const ir::Module*> layers;
    for (const ir::Module& module : modules()) {
      if (ir::kind_of(module.role) == ir::Kind::Attention && module.layer >= 0) {
        if (is_open(module.layer)) return;
        layers.push_back(&module);
      }
    }
    std::set<std::string> left;
    int changes = 0;
    const ir::Module* back = nullptr;
    for (size_t i = 1; i < layers.size(); ++i) {
      const std::string& before = layers[i - 1]->decision.device;
      const std::string& device = layers[i]->decision.device;
      if (device == before) continue;
      ++changes;
      left.insert(before);
      if (left.count(device) > 0 && !back) back = layers[i];
    }
    if (!back) return;
    std::set<std::string> used;
    for (const ir::Module* layer : layers) used.insert(layer->decision.device);
    const auto needed = static_cast<int>(used.size()) - 1;
    state_.diags
        ->warning(place_of_rule(*back), "D009",
                  fmt::format("layers go from device to device {} times, {} would do in another "
                              "order: layer {} is on {} again",
                              changes, needed, back->layer, back->decision.device))
        .help("give each device one run of layers, such as 0..15 and 16..");
  }

  CompileState& state_;
  const HandOvers& found_;
};

}  // namespace

Status check_hand_overs(CompileState& state) {
  if (state.rules.empty() || state.wrong_model) return {};
  if (state.check.dialect == rules::Dialect::KTransformers) return {};
  if (state.diags->errors() > 0) return {};  // the placement is not what it will be
  std::set<std::string> devices;
  for (const ir::Module& module : state.modules.modules) devices.insert(module.decision.device);
  if (devices.size() < 2 || !unreached_rules(state).empty()) return {};
  const Result<HandOvers> found = find_hand_overs(PricedModel(state), placement_of(state));
  // A failure to lower is reported when a plan is made.
  if (found) HandOverChecker(state, *found).run();
  return {};
}

}  // namespace ktx::passes
