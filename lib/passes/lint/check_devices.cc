// Checks that the target has the devices that rules name, that kernels exist for their
// generations, and that hand-written transfers agree with the placement.
//
// The machine is checked only if `--target` describes one: checks in CI, on a machine without a
// GPU, accept rules for GPUs. When a plan is made for a target, only generations are checked:
// rules of another program still compile.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/pass.h"
#include "lib/rules/device_name.h"
#include "lib/support/strings.h"
#include "lib/target/gpu_generation.h"

namespace ktx::passes {
namespace {

using rules::DeviceSpec;
using rules::Rule;
using target::DeviceId;

class DeviceChecker {
 public:
  explicit DeviceChecker(CompileState& state) : state_(state), diags_(*state.diags) {}

  void run() {
    for (const ir::Module& module : state_.modules.modules) {
      const bool attention = ir::kind_of(module.role) == ir::Kind::Attention;
      // What no rule places follows the rest, wherever that is.
      if (attention && module.layer >= 0 && module.decision.rule >= 0)
        device_of_layer_[module.layer] = module.decision.device;
    }
    for (size_t i = 0; i < state_.rules.rules.size(); ++i) {
      const Rule& rule = state_.rules.rules[i];
      if (state_.matched.outcomes[i].won == 0) continue;
      if (state_.check.target_given) {
        check_host(rule);
        check_count(rule);
        check_generation(rule, static_cast<int>(i));
      }
      if (const rules::Kwarg* map = rule.replace.kwarg("transfer_map")) check_transfers(*map);
      if (const rules::Kwarg* out = rule.replace.kwarg("out_device")) {
        check_out_device(*out, static_cast<int>(i));
      }
    }
    check_missing_transfers();
    if (state_.check.target_given) check_cpu();
  }

  void run_generations() {
    for (size_t i = 0; i < state_.rules.rules.size(); ++i) {
      if (state_.matched.outcomes[i].won > 0) {
        check_generation(state_.rules.rules[i], static_cast<int>(i));
      }
    }
    check_cpu();
  }

 private:
  std::vector<int> gpus_of(const Rule& rule) const {
    std::vector<int> gpus;
    if (rule.replace.place && rule.replace.place->host.empty()) gpus = rule.replace.place->gpus;
    for (const rules::ExpertsOn& set : rule.replace.experts) {
      const auto place = rules::parse_device(set.device.text);
      if (place && place->host.empty())
        gpus.insert(gpus.end(), place->gpus.begin(), place->gpus.end());
    }
    return gpus;
  }

  // The hosts of "b/cpu" and "b/cuda:0".
  void check_host(const Rule& rule) {
    std::vector<rules::Located> devices;
    if (rule.replace.device) devices.push_back(*rule.replace.device);
    for (const rules::ExpertsOn& set : rule.replace.experts) devices.push_back(set.device);
    for (const rules::Located& device : devices) {
      const auto place = rules::parse_device(device.text);
      if (!place || place->host.empty()) continue;
      const DeviceId id = target::device_id(rules::placed_name(state_.target, *place));
      if (has_device(state_.target, id)) continue;
      std::vector<std::string> hosts;
      for (const target::HostTarget& host : state_.target.hosts) hosts.push_back(host.name);
      const bool known = std::ranges::find(hosts, place->host) != hosts.end();
      const std::string has = hosts.empty() ? "the target has no `hosts`"
                                            : "the hosts of the target are " + join(hosts, ", ");
      diags_
          .error(device.loc, "D004",
                 fmt::format("device {} does not exist: {}", device.text,
                             known ? "host " + gpus_text(id, place->host) : has))
          .help(known
                    ? fmt::format("write {}/cpu, or list its GPUs in the target file", place->host)
                    : "name the host as the target file does, or write auto")
          .in_group("missing hosts");
      return;
    }
  }

  // "b has 2 GPUs (b/cuda:0 to b/cuda:1)"
  std::string gpus_text(const DeviceId& device, const std::string& host) const {
    const size_t has = passes::gpus_of(state_.target, host_number(state_.target, device)).size();
    if (has == 0) return host + " has no GPU in the target";
    return fmt::format("{0} has {1} ({0}/cuda:0{2})", host,
                       count_of(static_cast<int64_t>(has), "GPU"),
                       has > 1 ? fmt::format(" to {}/cuda:{}", host, has - 1) : "");
  }

  void check_count(const Rule& rule) {
    const int has = static_cast<int>(state_.target.gpus.size());
    for (int gpu : gpus_of(rule)) {
      if (gpu < has) continue;
      diags_
          .error(
              rule.replace.device ? rule.replace.device->loc : rule.replace.experts[0].device.loc,
              "D004",
              fmt::format("device cuda:{} does not exist: the target has {}", gpu,
                          has == 0
                              ? "no GPU"
                              : fmt::format("{} (cuda:0{})", count_of(has, "GPU"),
                                            has > 1 ? fmt::format(" to cuda:{}", has - 1) : "")))
          .help(has == 0 ? "write cpu, or auto for wherever it fits"
                         : "write cuda:* to spread the layers over the GPUs there are")
          .in_group("missing gpus");
      return;
    }
  }

  // The oldest GPU that the rule's modules lie on, and what its op needs.
  void check_generation(const Rule& rule, int index) {
    const rules::OpInfo* op = rule.replace.op_info;
    const bool theirs = state_.check.dialect == rules::Dialect::KTransformers;
    std::set<std::pair<std::pair<size_t, int>, DeviceId>> used;
    for (const ir::Module* module : modules_of(state_, index)) {
      const DeviceId device = target::device_id(module->decision.device);
      if (gpu_of(state_.target, device) == nullptr) continue;
      used.emplace(device_order(state_.target, device), device);
    }
    for (const auto& [order, gpu] : used) {
      const target::GpuTarget& facts = *gpu_of(state_.target, gpu);
      const int has = target::generation(facts);
      const std::string card = fmt::format("{} ({}, compute capability {}.{})", to_string(gpu),
                                           facts.name, facts.compute_major, facts.compute_minor);
      const SourceLoc loc = rule.replace.op ? rule.replace.op->loc : loc_of(rule);
      const bool marlin = op && op->becomes == "marlin";
      const int needs = op && (theirs || marlin) ? op->min_cc : 0;
      if (target::too_old(facts) && !theirs) {
        diags_
            .error(loc, "D001",
                   fmt::format("{} is too old: kernels exist for {} and newer", card,
                               target::oldest_gpu()))
            .help("place its modules on the CPU")
            .in_group(fmt::format("old gpu {}", to_string(gpu)));
        return;
      }
      if (has < needs) {
        Diagnostic& diag =
            diags_.error(loc, "D001",
                         fmt::format("{} needs compute capability {}.{}, but {} has less", op->name,
                                     needs / 10, needs % 10, card));
        diag.in_group(fmt::format("kernel on gpu {}", to_string(gpu)));
        if (theirs) {
          diag.help("write KLinearTorch, which takes four times the memory, or use a newer GPU");
        } else {
          diag.help(
              "write op: rows, which decodes the GGUF's codes in the kernel and takes the "
              "same memory");
        }
        return;
      }
    }
  }

  void check_transfers(const rules::Kwarg& map) {
    std::vector<std::pair<int32_t, rules::Located>> steps = map.devices;
    std::sort(steps.begin(), steps.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [layer, device] : steps) {
      if (layer < state_.modules.facts.layers) continue;
      diags_.warning(device.loc, "D005",
                     fmt::format("transfer_map names layer {}, but the model has {}", layer,
                                 state_.modules.facts.layers));
    }
    for (const auto& [layer, placed] : device_of_layer_) {
      const rules::Located* says = nullptr;
      for (const auto& step : steps) {
        if (step.first <= layer) says = &step.second;
      }
      if (!says) continue;
      const auto asked = rules::parse_device(says->text);
      if (!asked || rules::to_string(*asked) == placed) continue;
      diags_
          .report(severity_in(state_, Severity::Warning), says->loc, "D005",
                  fmt::format("transfer_map sends layer {} to {}, but the rules place it on {}",
                              layer, rules::to_string(*asked), placed))
          .help("ktx derives transfers from the placement; the rules of the layers decide");
      return;
    }
  }

  // Where the result of a CPU operator goes should be where its layer lives.
  void check_out_device(const rules::Kwarg& out, int rule) {
    const auto asked = rules::parse_device(out.value.text);
    if (!asked || out.is_null || asked->kind == DeviceSpec::Kind::Foreign) return;
    int64_t count = 0;
    std::string first, placed;
    for (const ir::Module* module : modules_of(state_, rule)) {
      const auto layer = device_of_layer_.find(module->layer);
      if (layer == device_of_layer_.end() || layer->second == rules::to_string(*asked)) continue;
      if (count++ > 0) continue;
      first = module->path;
      placed = layer->second;
    }
    if (count == 0) return;
    diags_
        .report(severity_in(state_, Severity::Warning), out.value.loc, "D006",
                fmt::format("out_device is {}, but the layer lives on {}: {}",
                            rules::to_string(*asked), placed, and_more(first, count)))
        .help("ktx sends the result to the layer's device")
        .in_group("out_device");
  }

  // KTransformers moves nothing by itself.
  void check_missing_transfers() {
    if (state_.check.dialect != rules::Dialect::KTransformers || device_of_layer_.empty()) return;
    for (const Rule& rule : state_.rules.rules) {
      if (rule.replace.kwarg("transfer_map")) return;
    }
    for (const auto& [layer, device] : device_of_layer_) {
      if (device == device_of_layer_.begin()->second) continue;
      diags_
          .error({state_.rules.files.empty() ? "" : state_.rules.files.front().path}, "D005",
                 fmt::format("layers lie on {} and, from layer {} on, on {}, but no rule has a "
                             "`transfer_map`",
                             device_of_layer_.begin()->second, layer, device))
          .help("give the model's operator (KDeepseekV2Model) a transfer_map");
      return;
    }
  }

  void check_cpu() {
    if (state_.target.cpu.isa != Isa::Scalar) return;
    diags_.warning({}, "D002",
                   "the target's CPU has no AVX2: plain C++ kernels will be used, which are slow");
  }

  CompileState& state_;
  DiagSink& diags_;
  std::map<int32_t, std::string> device_of_layer_;  // of its attention
};

}  // namespace

Status check_devices(CompileState& state) {
  if (state.check.only) DeviceChecker(state).run();
  // A plan is made: missing devices were reported when modules were placed.
  if (!state.check.only && state.check.for_target) DeviceChecker(state).run_generations();
  return {};
}

}  // namespace ktx::passes
