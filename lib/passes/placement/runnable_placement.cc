#include "lib/passes/placement/runnable_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/gpu/gpu_limits.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lower/divided_units.h"
#include "lib/passes/placement/gpu_formats.h"
#include "lib/target/gpu_generation.h"

namespace ktx::passes {
namespace {

// Devices that the target lacks, with the modules that rules put there.
class LackedDevices {
 public:
  void add(const ir::Module& module, const std::string& device) {
    const bool named = !device.empty() && device != "cpu" && device != "auto";
    if (!named || module.decision.rule < 0) return;
    Use& use = uses_[device];
    if (use.modules++ == 0) use.rule = module.decision.rule;
  }

  void report(const PricedModel& model, DiagSink& diags) const {
    const bool has_gpus = !all_gpus(model.target).empty();
    for (const auto& [device, use] : uses_) {
      const rules::Rule& rule = model.rules.rules[static_cast<size_t>(use.rule)];
      Diagnostic& diag =
          diags.warning(rule.replace.device             ? rule.replace.device->loc
                        : !rule.replace.experts.empty() ? rule.replace.experts[0].device.loc
                                                        : rule.loc,
                        "D004",
                        fmt::format("the target has no device '{}': {} modules go to the CPU",
                                    device, use.modules));
      diag.in_group("no gpu");
      if (!has_gpus) diag.help("to compile for another machine, name it: --target=h200");
    }
  }

 private:
  struct Use {
    int64_t modules = 0;
    int32_t rule = -1;
  };
  std::map<std::string, Use> uses_;
};

void keep_present(const PricedModel& model, Placement& placement, DiagSink& diags) {
  LackedDevices lacked;
  for (const ir::Module& module : model.modules.modules) {
    ModulePlace& place = placement.at(model.modules, module);
    std::erase_if(place.splits, [&](const ExpertSplit& split) {
      if (split.device && has_device(model.target, *split.device)) return false;
      if (split.device) lacked.add(module, to_string(*split.device));
      return true;
    });
    const bool whole = std::ranges::all_of(
        place.team, [&](const DeviceId& gpu) { return has_device(model.target, gpu); });
    if (!whole) place.team.clear();
    if (has_device(model.target, place.device)) continue;
    lacked.add(module, to_string(place.device));
    const DeviceId beside = place.device.cpu_beside();
    place.device = has_device(model.target, beside) ? beside : DeviceId{};
    std::erase_if(place.splits,
                  [&](const ExpertSplit& split) { return split.device == place.device; });
  }
  lacked.report(model, diags);
}

const rules::Rule* rule_of(const PricedModel& model, const ir::Module& module) {
  const int32_t number = module.decision.rule;
  return number < 0 ? nullptr : &model.rules.rules[static_cast<size_t>(number)];
}

// Modules with weights that no GPU kernel reads stay on the CPU: what a rule wanted otherwise is a
// warning.
void keep_unknown_formats(const PricedModel& model, Placement& placement, DiagSink& diags) {
  for (const ir::Module& module : model.modules.modules) {
    ModulePlace& place = placement.at(model.modules, module);
    if (std::ranges::all_of(devices_of(place), &DeviceId::is_cpu)) continue;
    for (const ir::Param& param : module.params) {
      const std::string why = gpu_refusal(module.role, param);
      if (why.empty()) continue;
      const rules::Rule* rule = rule_of(model, module);
      const auto& device = rule ? rule->replace.device : std::nullopt;
      const bool sets = rule && !rule->replace.experts.empty();
      const bool asked = sets || (device && device->text != "auto");
      const std::string text = fmt::format("{}: {}; it stays on the CPU", module.path, why);
      Diagnostic& diag =
          asked ? diags.warning(sets ? rule->replace.experts[0].device.loc : device->loc, "Q001",
                                text)
                : diags.note({}, "", text);
      diag.in_group(fmt::format("{} of {}", why, module.decision.rule));
      if (asked) {
        diag.help("write device: cpu, or use a file with Q4_0, Q4_K, MXFP4 or larger types there");
      }
      place.device = place.device.cpu_beside();
      place.splits.clear();
      place.team.clear();
      break;
    }
  }
}

// What no GPU kernel computes among the module's steps without weights; empty: nothing.
std::string state_refusal(const ir::Module& module) {
  if (const auto* net = std::get_if<ir::DeltaNetInfo>(&module.info)) {
    if (kernels::gpu_delta_rule_takes(net->head_dim)) return "";
    return fmt::format("a gated delta rule of heads of {}", net->head_dim);
  }
  if (const auto* space = std::get_if<ir::StateSpaceInfo>(&module.info)) {
    if (kernels::gpu_state_space_takes(space->head_dim, space->state_dim)) return "";
    return fmt::format("states of {} by {}", space->state_dim, space->head_dim);
  }
  if (std::holds_alternative<ir::SelectiveScanInfo>(module.info)) {
    return "state spaces with a decay for each number of the state";
  }
  if (const auto* mla = std::get_if<ir::MlaInfo>(&module.info); mla && mla->index_pool > 0) {
    return "attention to chosen pools of positions";
  }
  if (const auto* attention = std::get_if<ir::CompressedAttentionInfo>(&module.info)) {
    if (kernels::gpu_compressed_attention_takes(attention->head_dim)) return "";
    return fmt::format("attention over compressed entries of {}", attention->head_dim);
  }
  if (const auto* attention = std::get_if<ir::AttentionInfo>(&module.info)) {
    if (attention->index_heads > 0) return "attention to chosen pools of positions";
    return attention->alibi > 0 ? "attention whose scores fall with the distance" : "";
  }
  if (const auto* streams = std::get_if<ir::StreamsInfo>(&module.info); streams && streams->rank) {
    return "gates of residual streams";
  }
  if (std::holds_alternative<ir::NgramPartInfo>(module.info) ||
      module.role == ir::Role::NgramTable) {
    return "tables of n-grams";
  }
  if (std::holds_alternative<ir::SourcesInfo>(module.info)) {
    return "attention over earlier streams";
  }
  return "";
}

// What is placed by bytes leaves out GPUs that no kernel is built for.
void warn_of_old_gpus(const target::Target& target, DiagSink& diags) {
  for (size_t host = 0; host < std::max<size_t>(target.hosts.size(), 1); ++host) {
    const std::vector<target::GpuTarget>& gpus = gpus_of(target, host);
    for (size_t i = 0; i < gpus.size(); ++i) {
      const target::GpuTarget& gpu = gpus[i];
      if (!target::too_old(gpu)) continue;
      const DeviceId device{host == 0 ? "" : target.hosts[host].name, DeviceId::Kind::Cuda,
                            static_cast<int>(i)};
      diags
          .warning({}, "D001",
                   fmt::format("{} ({}, compute capability {}.{}) is too old: kernels exist "
                               "for {} and newer, and nothing is placed there by itself",
                               target::to_string(device), gpu.name, gpu.compute_major,
                               gpu.compute_minor, target::oldest_gpu()))
          .in_group("old gpu");
    }
  }
}

// Whether a GPU of the head's team has all of its weight for the embedding.
bool has_table_whole(const PricedModel& model, const Placement& placement, const ir::Module& head) {
  const std::vector<DeviceId>& team = placement.at(model.modules, head).team;
  const ir::Param* weight = head.param("weight");
  return std::ranges::any_of(model.modules.modules, [&](const ir::Module& module) {
    const ir::Param* table = module.role == ir::Role::Embedding ? module.param("weight") : nullptr;
    if (table == nullptr || weight == nullptr) return false;
    const DeviceId& device = placement.at(model.modules, module).device;
    return table->sources[0].tensor == weight->sources[0].tensor &&
           std::ranges::find(team, device) != team.end();
  });
}

// Residual streams of hyper-connections, which one GPU keeps.
bool is_of_streams(const ir::Module& module) {
  static constexpr ir::Role kRoles[] = {ir::Role::StreamsNorm,   ir::Role::StreamsDownProj,
                                        ir::Role::StreamsUpProj, ir::Role::StreamsGiveProj,
                                        ir::Role::NgramKeyProj,  ir::Role::NgramValueProj,
                                        ir::Role::NgramKeyNorm,  ir::Role::NgramQueryNorm,
                                        ir::Role::NgramConvNorm, ir::Role::NgramTable};
  return std::holds_alternative<ir::StreamsInfo>(module.info) ||
         std::ranges::count(kRoles, module.role) > 0;
}
bool is_of_altup(const ir::Module& module) {
  static constexpr ir::Role kRoles[] = {ir::Role::AltUp,
                                        ir::Role::AltUpRouter,
                                        ir::Role::AltUpRouterNorm,
                                        ir::Role::AltUpPredictProj,
                                        ir::Role::AltUpCorrectProj,
                                        ir::Role::AltUpEmbedProj,
                                        ir::Role::AltUpUnembedProj};
  return std::ranges::count(kRoles, module.role) > 0;
}

// Where GPUs divide parts of layers, sums go to one stream of several at a time, which split-steps
// has not: AltUp is the CPU's then.
void keep_altup_whole(const PricedModel& model, Placement& placement) {
  const bool divided = std::ranges::any_of(
      placement.of_module, [](const ModulePlace& place) { return !place.team.empty(); });
  for (const ir::Module& module : model.modules.modules) {
    if (!divided || !is_of_altup(module)) continue;
    ModulePlace& place = placement.at(model.modules, module);
    place.device = place.device.cpu_beside();
    place.team.clear();
  }
}

// A part of a layer that GPUs would divide, and of which a module has gone to the CPU, is computed
// by the first GPU; so are residual streams.
void keep_units_whole(const PricedModel& model, Placement& placement) {
  keep_altup_whole(model, placement);
  std::set<const ir::Module*> broken;
  const ir::Module* head = model.modules.child(model.modules.root(), ir::Role::Head);
  if (head != nullptr && has_table_whole(model, placement, *head)) broken.insert(head);
  for (const ir::Module& module : model.modules.modules) {
    const ir::Module* unit = unit_of(model.modules, module);
    const bool has_work = !module.params.empty() || &module == unit;
    if (unit && has_work && placement.at(model.modules, module).team.empty()) broken.insert(unit);
  }
  for (const ir::Module& module : model.modules.modules) {
    if (!broken.contains(unit_of(model.modules, module)) && !is_of_streams(module)) continue;
    placement.at(model.modules, module).team.clear();
  }
}

}  // namespace

bool gpu_kernels_compute(const ir::Module& module) {
  return state_refusal(module).empty();
}

Placement all_on_cpu(const PricedModel& model, DiagSink& diags) {
  Placement placement{{}, model.streams};
  LackedDevices lacked;
  for (const ir::Module& module : model.modules.modules) {
    ModulePlace& place = placement.of_module.emplace_back(place_of(module));
    for (const ir::ExpertSet& set : module.decision.expert_sets) lacked.add(module, set.device);
    lacked.add(module, module.decision.device);
    const bool stays = module.decision.device == "cpu";
    std::erase_if(place.splits,
                  [&](const ExpertSplit& split) { return !stays || split.device != DeviceId{}; });
    place.device = {};
    place.team.clear();
  }
  lacked.report(model, diags);
  return placement;
}

// A delta net, a state space or another part that no GPU kernel takes has its steps without weights
// on the CPU; its products stay where they were placed.
void keep_states(const PricedModel& model, Placement& placement, DiagSink& diags) {
  const ir::Module* first = nullptr;
  const rules::Rule* asked = nullptr;  // for one of them
  std::vector<std::string> what;
  int64_t count = 0;
  for (const ir::Module& module : model.modules.modules) {
    ModulePlace& place = placement.at(model.modules, module);
    DeviceId& device = place.device;
    const std::string refused = state_refusal(module);
    if (device.is_cpu() || refused.empty()) continue;
    if (std::ranges::count(what, refused) == 0) what.push_back(refused);
    device = device.cpu_beside();
    place.team.clear();
    ++count;
    if (first == nullptr) first = &module;
    const rules::Rule* rule = rule_of(model, module);
    const bool named = rule && rule->replace.device && rule->replace.device->text != "auto";
    if (asked == nullptr && named) asked = rule;
  }
  if (first == nullptr) return;
  const std::string text = fmt::format(
      "{} and {} more: no GPU kernel computes {}; it stays on the CPU, the products around it do not",
      first->path, count - 1, fmt::join(what, ", "));
  if (asked != nullptr) {
    diags.warning(asked->replace.device->loc, "Q001", text);
  } else {
    diags.note({}, "", text);
  }
}

void keep_runnable(const PricedModel& model, Placement& placement, DiagSink& diags) {
  keep_present(model, placement, diags);
  warn_of_old_gpus(model.target, diags);
  keep_unknown_formats(model, placement, diags);
  keep_states(model, placement, diags);
  keep_units_whole(model, placement);
}

}  // namespace ktx::passes
