// Does a token change devices more often than the placement needs? Three shapes:
//
//   D007  a device computes activations and holds no matrix: norms alone, for example
//   D008  a layer is cut into pieces: more than there and back within one layer
//   D009  layers go back to a device that they have left: 0..9 there, 10..19 here, 20.. there
//
// Each hand-over costs about as much as reading a megabyte from a CPU's memory (estimate.h).
// Rules that reach no weight (check_reach.cc) cause all of these, and are told alone.
#include "lib/passes/hand_overs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/passes/estimate.h"
#include "lib/passes/pass.h"
#include "lib/passes/rule_reach.h"
#include "lib/passes/rule_report.h"

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

  // Without a target nobody knows where the compiler would put it.
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
    return fmt::format("{} hand-overs a token, {:.1f} ms", count, count * kCrossingSeconds * 1e3);
  }

  bool check_idle_devices() {
    bool reported = false;
    for (const auto& [device, paths] : found_.modules_on) {
      const bool used = std::any_of(modules().begin(), modules().end(),
                                    [&, on = std::string_view(device)](const auto& m) {
                                      return m.decision.device == on && has_matrix(m);
                                    });
      if (used) continue;
      const auto first =
          std::find_if(modules().begin(), modules().end(), [&](const ir::Module& module) {
            return paths.count(module.path) > 0 && module.decision.rule >= 0 && !is_open(module);
          });
      if (first == modules().end()) continue;
      const auto count =
          static_cast<int>(std::count_if(found_.all.begin(), found_.all.end(),
                                         [&, on = std::string_view(device)](const HandOver& h) {
                                           return h.from == on || h.to == on;
                                         }));
      state_.diags
          ->warning(
              place_of_rule(*first), "D007",
              fmt::format("{} computes {} and holds no matrix of the model: {}", device,
                          count_of(static_cast<int64_t>(paths.size()), "module"), price(count)))
          .note({}, fmt::format("the modules are {}",
                                and_more(first->path, static_cast<int64_t>(paths.size()))))
          .help("put them where the matrices before and after them are");
      reported = true;
    }
    return reported;
  }

  void check_pieces() {
    std::map<int32_t, int> of_layer;
    for (const HandOver& hand_over : found_.all) {
      if (hand_over.within_layer) ++of_layer[hand_over.layer];
    }
    std::erase_if(of_layer, [&](const auto& entry) {
      return entry.second <= kThereAndBack || is_open(entry.first);
    });
    if (of_layer.empty()) return;
    int total = 0;
    for (const auto& [layer, count] : of_layer) total += count;
    const auto [layer, count] = *of_layer.begin();
    std::map<std::string, std::vector<const ir::Module*>> devices;
    for (const ir::Module& module : modules()) {
      if (module.layer == layer && !module.params.empty()) {
        devices[module.decision.device].push_back(&module);
      }
    }
    const auto fewest = std::min_element(
        devices.begin(), devices.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (fewest == devices.end()) return;
    std::string pieces;
    for (size_t i = 0; i < std::min<size_t>(fewest->second.size(), 4); ++i) {
      pieces += (i ? ", " : "") + fewest->second[i]->path;
    }
    if (fewest->second.size() > 4) pieces += fmt::format(" and {} more", fewest->second.size() - 4);
    // Experts elsewhere are usual: what is beside them is the odd part.
    const auto odd =
        std::find_if(fewest->second.begin(), fewest->second.end(),
                     [](const ir::Module* module) { return module->role != ir::Role::Experts; });
    const ir::Module& example = odd == fewest->second.end() ? *fewest->second.front() : **odd;
    state_.diags
        ->warning(
            place_of_rule(example), "D008",
            fmt::format(
                "{} cut into pieces: layer {} goes from device to device {} times for "
                "a token, where {} are enough for a block elsewhere ({} in all)",
                of_layer.size() == 1 ? "a layer is" : fmt::format("{} layers are", of_layer.size()),
                layer, count, kThereAndBack, price(total)))
        .note({}, fmt::format("on {} of layer {}: {}", fewest->first, layer, pieces))
        .help("put whole blocks (self_attn, mlp, experts) or whole layers on one device");
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
  const auto place_of = [](const ir::Module& module) { return module.decision.device; };
  std::set<std::string> devices;
  for (const ir::Module& module : state.modules.modules) devices.insert(place_of(module));
  if (devices.size() < 2 || !unreached_rules(state).empty()) return {};
  const Result<HandOvers> found = find_hand_overs(state);
  // What cannot be lowered is told when a plan is made.
  if (found) HandOverChecker(state, *found).run();
  return {};
}

}  // namespace ktx::passes
