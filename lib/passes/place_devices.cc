// Puts every module on a device.
//
// Rules that name a device win. A module without a rule goes with its nearest ancestor that has
// a device, else with the attention of its layer:
//
//   layers.3.self_attn          cuda:1   by a rule
//   layers.3.self_attn.kv_b_proj         -> cuda:1, as self_attn
//   layers.3.input_layernorm             -> cuda:1, as the layer's attention
//   model.norm                           -> as the last layer
//
// Everything else, and modules with `auto`, are placed by bytes: on as few GPUs of the target as
// hold all of it. Where all are too few, layers are spread over them in equal shares, then the
// embedding and the experts of as many layers as still fit, of one more layer as many experts as
// fit; the rest stays on the CPU. With a profile of experts the most used ones of all layers go to
// the GPUs instead, where that is faster. `cuda:0-3` spreads layers over these GPUs. Whether room
// is kept to stream the experts of the CPU in long prompts, how much of it (stream_experts.h), and
// which of the two it is, is decided by the time that is predicted for a prompt of 4096 tokens, one
// of 512 and an answer of 512.
//
// Where the target has several hosts, layers are spread over these (spread_over_hosts.h), and each
// has its layers on its GPUs and its CPU as one machine has all; the head is on the first host.
// `cuda:0-3` and `cuda:*` are GPUs of the first host.
//
// A plan is for the CPU alone if the target has no GPU; the target is that of --target, else
// the machine at hand.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "kernels/gpu/gpu_limits.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/passes/choose_experts.h"
#include "lib/passes/estimate.h"
#include "lib/passes/expert_groups.h"
#include "lib/passes/host_links.h"
#include "lib/passes/pass.h"
#include "lib/passes/pass_time.h"
#include "lib/passes/spread_over_hosts.h"
#include "lib/passes/stream_experts.h"
#include "lib/rules/device_name.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

using ir::Role;
using rules::DeviceSpec;

bool is_embedding(const ir::Module& module) {
  return ir::kind_of(module.role) == ir::Kind::Embedding;
}

// Routed experts are computed from tiles alone.
bool gpus_take(Role role, DType dtype) {
  if (kernels::marlin_takes(dtype)) return true;
  if (role == Role::Experts) return false;
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

// Why no GPU kernel takes a parameter; "" when one does.
std::string gpu_refusal(Role role, const ir::Param& param) {
  if (role == Role::Experts && param.name.ends_with("_factors")) {
    return "no GPU kernel applies a factor to each expert's gate and up";
  }
  const bool vectors = param.rows == 1 || param.name.ends_with("bias");
  if (vectors || gpus_take(role, param.dtype)) return "";
  return fmt::format("no GPU kernel takes {} weights", name(param.dtype));
}

class Placer {
 public:
  explicit Placer(CompileState& state) : state_(state), modules_(state.modules.modules) {}

  void run() {
    inherit();
    std::vector<int> all(state_.target.gpus.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    for (ir::Module& module : modules_) {
      const auto place = rules::parse_device(module.decision.device);
      if (!place || place->kind != DeviceSpec::Kind::Spread) continue;
      const std::vector<std::string> gpus = gpu_names("", place->gpus.empty() ? all : place->gpus);
      const Run layers{0, state_.modules.facts.layers};
      module.decision.device = gpus.empty() ? no_gpu() : gpus[share_of(module, layers, gpus)];
    }
    place_auto();
    choose_experts(state_);
  }

 private:
  // Of a host; "": of the first one, or of the only machine.
  static std::vector<std::string> gpu_names(std::string_view host, const std::vector<int>& gpus) {
    std::vector<std::string> names;
    for (const int gpu : gpus) {
      names.push_back(target::device_on(host, fmt::format("cuda:{}", gpu)));
    }
    return names;
  }
  // Of cuda:* when no target says how many there are.
  std::string no_gpu() const { return state_.check.target_given ? "cpu" : "cuda:0"; }

  // Layers that lie one behind the other.
  struct Run {
    int32_t first = 0, count = 0;
  };

  // Which of these GPUs a module's layer falls on: equal shares of the layers of a run, or
  // shares by memory where the target says how much each has.
  size_t share_of(const ir::Module& module, const Run& layers,
                  const std::vector<std::string>& gpus) const {
    const bool before = is_embedding(module);
    const double at = module.layer >= 0
                          ? (module.layer - layers.first + 0.5) / std::max(layers.count, 1)
                      : before ? 0.0
                               : 1.0;
    std::vector<double> weights;
    double total = 0;
    for (const std::string& gpu : gpus) {
      const target::GpuTarget* const facts = gpu_of(state_.target, gpu);
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
      if (at < sum) return i;
    }
    return gpus.size() - 1;
  }

  void inherit() {
    std::vector<std::string> of_layer(
        static_cast<size_t>(std::max(state_.modules.facts.layers, 0)));
    for (const ir::Module& module : modules_) {
      const bool attention = ir::kind_of(module.role) == ir::Kind::Attention;
      if (attention && module.layer >= 0 && module.layer < static_cast<int>(of_layer.size())) {
        of_layer[static_cast<size_t>(module.layer)] = module.decision.device;
      }
    }
    for (ir::Module& module : modules_) {
      std::string& device = module.decision.device;
      if (!device.empty()) continue;
      const bool listed = module.parent >= 0 && module.role != Role::Experts;
      if (listed) device = modules_[static_cast<size_t>(module.parent)].decision.device;
      if (!device.empty() || of_layer.empty()) continue;
      if (module.layer >= 0 && module.layer < static_cast<int>(of_layer.size()) &&
          module.role != Role::Experts) {
        device = of_layer[static_cast<size_t>(module.layer)];
      } else if (module.role == Role::FinalNorm || module.role == Role::Head ||
                 module.role == Role::ScoreDense || module.role == Role::ScoreHead) {
        // Logits are wanted on the first host, and may share the embedding's table.
        if (target::is_first_host(of_layer.back())) device = of_layer.back();
      }
    }
  }

  // A machine with GPUs, and what is placed there by bytes.
  struct Site {
    std::string cpu;                // "cpu", "b/cpu"
    std::vector<std::string> gpus;  // that are new enough
    std::vector<ir::Module*> open;
    Run layers;  // of all of them
  };
  using Sites = std::vector<Site>;

  // Of the hosts, or the one machine, that have GPUs; open modules are on CPUs.
  Sites sites_of(const std::vector<ir::Module*>& open) const {
    Sites sites;
    for (size_t host = 0; host < std::max<size_t>(state_.target.hosts.size(), 1); ++host) {
      const std::string name = host == 0 ? "" : state_.target.hosts[host].name;
      std::vector<int> numbers;
      const std::vector<target::GpuTarget>& gpus = gpus_of(state_.target, host);
      for (size_t i = 0; i < gpus.size(); ++i) {
        if (!target::too_old(gpus[i])) numbers.push_back(static_cast<int>(i));
      }
      Site site{target::device_on(name, "cpu"), gpu_names(name, numbers), {}, {}};
      int32_t last = -1;
      for (ir::Module* module : open) {
        if (module->decision.device != site.cpu) continue;
        site.open.push_back(module);
        if (module->layer < 0) continue;
        site.layers.first = last < 0 ? module->layer : std::min(site.layers.first, module->layer);
        last = std::max(last, module->layer);
      }
      site.layers.count = last < 0 ? 0 : last - site.layers.first + 1;
      if (!has_hosts(state_.target)) site.layers = {0, state_.modules.facts.layers};
      if (!site.gpus.empty() && !site.open.empty()) sites.push_back(std::move(site));
    }
    return sites;
  }

  // Whether the GPUs of a site hold what is on them.
  bool fits(const Estimator& estimator, const Site& site) const {
    const Result<Estimate> now = estimator.run(state_);
    return now && std::ranges::all_of(now->devices, [&](const DeviceUse& device) {
             return target::is_cpu(device.name) || !target::on_same_host(device.name, site.cpu) ||
                    device.total() <= device.capacity;
           });
  }

  // Modules without a device and those that say auto.
  void place_auto() {
    std::vector<ir::Module*> open;
    for (ir::Module& module : modules_) {
      const std::string& device = module.decision.device;
      if (device.empty() || device == "auto") open.push_back(&module);
    }
    if (open.empty()) return;
    for (ir::Module* module : open) module->decision.device = "cpu";
    if (has_hosts(state_.target)) spread_over_hosts(state_, open);
    if (!state_.check.target_given) return;
    Sites sites = sites_of(open);
    if (sites.empty()) return;
    const Result<Estimator> estimator = Estimator::make(state_);
    if (!estimator) return;
    const std::vector<StreamWay> ways = stream_ways(state_);
    assume_streams(state_, ways.front());
    const Sites all = sites;
    std::erase_if(sites, [&](const Site& site) {
      return fits_on_fewer(site, [&] { return fits(*estimator, site); });
    });
    // All but experts and the embedding first: they are read for every token.
    for (const Site& site : sites) {
      for (ir::Module* module : site.open) {
        if (module->role == Role::Experts || is_embedding(*module)) continue;
        module->decision.device = site.gpus[share_of(*module, site.layers, site.gpus)];
      }
    }
    choose_experts(state_);
    std::erase_if(sites, [&](const Site& site) {
      const auto fits_there = [&] { return fits(*estimator, site); };
      if (fits_there()) return false;
      drop_until_fits(site, fits_there);
      return true;
    });
    if (!sites.empty()) place_experts(*estimator, sites, all, ways);
  }

  // With room to stream the experts that are left for the CPU prompts may be faster, but tokens are
  // slower, as fewer others fit.
  // `all`: also those that have their modules.
  void place_experts(const Estimator& estimator, const Sites& sites, const Sites& all,
                     const std::vector<StreamWay>& ways) {
    std::optional<Found> best;
    for (const StreamWay& way : ways) {
      for (bool by_use : {false, true}) {
        if (by_use && !state_.expert_profile) continue;
        for (const Site& site : sites) take_back_experts(site);
        assume_streams(state_, way);
        if (!std::ranges::all_of(all, [&](const Site& s) { return fits(estimator, s); })) continue;
        for (const Site& site : sites) fill_with_experts(estimator, site, by_use);
        if (!experts_on_cpu(sites)) {
          if (way.slots) continue;
          return;
        }
        const std::optional<StreamTrial> trial = predict_trial(state_, way);
        if (!trial) continue;
        keep_trial(state_.stream_trials, *trial);
        // A rule may want streams whatever they take.
        const bool wanted = best && !best->trial.way.slots && wants_streams(state_);
        if (!best || wanted || trial->is_better_than(best->trial)) {
          best = Found{*trial, decisions_of(sites)};
        }
      }
    }
    if (!best) return assume_streams(state_, ways.front());
    for (StreamTrial& trial : state_.stream_trials) {
      trial.chosen = trial.way.slots == best->trial.way.slots;
    }
    take_way(state_, best->trial.way);
    auto decision = best->decisions.begin();
    for (const Site& site : sites) {
      for (ir::Module* module : site.open) module->decision = *decision++;
    }
  }

  // Devices take turns, so that more GPUs than hold the model make nothing faster: each one is a
  // hand-over. Puts all open modules on the fewest of the fastest ones, where no rule has used a
  // GPU.
  template <class Fits>
  bool fits_on_fewer(const Site& site, const Fits& fits) {
    const bool used = std::ranges::any_of(modules_, [&](const ir::Module& module) {
      const std::string& device = module.decision.device;
      return (!target::is_cpu(device) && target::on_same_host(device, site.cpu)) ||
             !module.decision.expert_sets.empty();
    });
    if (used) return false;
    std::vector<std::string> gpus = site.gpus;
    std::ranges::stable_sort(gpus, std::greater(), [&](const std::string& gpu) {
      return rates_of(state_.target, gpu).read;
    });
    for (size_t n = 1; n < gpus.size(); ++n) {
      const std::vector<std::string> fewer(gpus.begin(), gpus.begin() + static_cast<ptrdiff_t>(n));
      for (ir::Module* module : site.open) {
        module->decision.device = fewer[share_of(*module, site.layers, fewer)];
      }
      if (fits()) return true;
    }
    for (ir::Module* module : site.open) module->decision.device = site.cpu;
    return false;
  }

  // A placement of the open modules.
  struct Found {
    StreamTrial trial;
    std::vector<ir::Decision> decisions;
  };
  static std::vector<ir::Decision> decisions_of(const Sites& sites) {
    std::vector<ir::Decision> all;
    for (const Site& site : sites) {
      for (const ir::Module* module : site.open) all.push_back(module->decision);
    }
    return all;
  }
  static bool is_late(const ir::Module& module) {
    return module.role == Role::Experts || is_embedding(module);
  }
  static void take_back_experts(const Site& site) {
    for (ir::Module* module : site.open) {
      if (!is_late(*module)) continue;
      module->decision.device = site.cpu;
      module->decision.expert_sets.clear();
    }
  }

  bool experts_on_cpu(const Sites& sites) const {
    return std::ranges::any_of(modules_, [&](const ir::Module& module) {
      return can_be_streamed(state_, module) &&
             std::ranges::find(sites, module.decision.device, &Site::cpu) != sites.end();
    });
  }

  // Whole layers go back to the CPU, from the last on.
  template <class Fits>
  void drop_until_fits(const Site& site, const Fits& fits) {
    const std::vector<ir::Module*>& open = site.open;
    int32_t low = site.layers.first, high = low + site.layers.count;  // layers kept on GPUs
    std::vector<std::string> wished;
    for (const ir::Module* module : open) wished.push_back(module->decision.device);
    const auto keep = [&](int32_t layers) {
      for (size_t i = 0; i < open.size(); ++i) {
        const bool on = open[i]->layer >= 0 && open[i]->layer < layers;
        open[i]->decision.device = on ? wished[i] : site.cpu;
      }
    };
    while (low < high) {
      const int32_t middle = (low + high + 1) / 2;
      keep(middle);
      if (fits()) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    keep(low);
  }

  bool has_experts(const std::string& device) const {
    return std::ranges::any_of(modules_, [&](const ir::Module& module) {
      return module.role == Role::Experts && experts_on(module, device) > 0;
    });
  }

  using Room = std::map<std::string, uint64_t>;  // by device

  void fill_with_experts(const Estimator& estimator, const Site& site, bool by_use) {
    const Result<Estimate> now = estimator.run(state_);
    if (!now) return;
    Room room;
    for (const DeviceUse& device : now->devices) {
      uint64_t taken = device.total();
      if (!has_experts(device.name)) {
        const auto scratch = estimator.scratch_of_experts(state_.check.shape);
        taken += scratch ? *scratch : 0;
      }
      if (device.capacity > taken) room[device.name] = device.capacity - taken;
    }
    const auto device_of = [&](const ir::Module& module) {
      return site.gpus[share_of(module, site.layers, site.gpus)];
    };
    std::vector<ir::Module*> experts;  // that are still on the CPU
    for (ir::Module* module : site.open) {
      if (!is_late(*module)) continue;
      const bool may_split = can_be_split(*module);
      const std::string device = device_of(*module);
      const uint64_t bytes = placed_bytes(*module);
      if (room[device] < bytes || (by_use && may_split)) {
        if (may_split) experts.push_back(module);
        continue;
      }
      room[device] -= bytes;
      module->decision.device = device;
    }
    if (by_use) return take_most_used(experts, room, device_of);
    for (ir::Module* module : experts) {
      const std::string device = device_of(*module);
      const int32_t count = experts_that_fit(*module, room[device]);
      if (count < kLeastSplit * experts_of_layer(*module)) continue;
      split_experts(state_, *module, device, count);
      room[device] = 0;
    }
  }

  // Of all layers the experts that get the most activations for their bytes.
  template <class DeviceOf>
  void take_most_used(const std::vector<ir::Module*>& experts, Room& room,
                      const DeviceOf& device_of) {
    struct Candidate {
      double use_per_byte;
      size_t module;
    };
    std::vector<Candidate> candidates;
    std::vector<int32_t> counts(experts.size());
    for (size_t i = 0; i < experts.size(); ++i) {
      const int32_t all = experts_of_layer(*experts[i]);
      const double bytes = static_cast<double>(expert_bytes(*experts[i]));
      const auto* profile = state_.expert_profile.get();
      for (int32_t expert : plan::experts_by_use(profile, experts[i]->layer, all)) {
        const double use = plan::expert_use(profile, experts[i]->layer, {&expert, 1}, all);
        candidates.push_back({use / std::max(bytes, 1.0), i});
      }
    }
    // Within a layer they come in the order in which split_experts() takes them.
    std::ranges::stable_sort(candidates, std::greater(), &Candidate::use_per_byte);
    for (const Candidate& candidate : candidates) {
      ir::Module& module = *experts[candidate.module];
      uint64_t& left = room[device_of(module)];
      const uint64_t bytes = expert_bytes(module);
      if (left < bytes) continue;
      left -= bytes;
      ++counts[candidate.module];
    }
    for (size_t i = 0; i < experts.size(); ++i) {
      split_experts(state_, *experts[i], device_of(*experts[i]), counts[i]);
    }
  }

  // Fewer of a layer's experts than this share do not pay for the kernels that they take.
  static constexpr double kLeastSplit = 1.0 / 32;

  static int32_t experts_of_layer(const ir::Module& experts) {
    return std::get<ir::ExpertsInfo>(experts.info).experts;
  }
  // Rounded up.
  static uint64_t expert_bytes(const ir::Module& experts) {
    return placed_bytes(experts) / static_cast<uint64_t>(experts_of_layer(experts)) + 1;
  }
  static int32_t experts_that_fit(const ir::Module& experts, uint64_t room) {
    const uint64_t count = room / expert_bytes(experts);
    return static_cast<int32_t>(
        std::min<uint64_t>(count, static_cast<uint64_t>(experts_of_layer(experts)) - 1));
  }
  // Whether GPUs can compute some of its experts.
  static bool can_be_split(const ir::Module& module) {
    if (module.role != Role::Experts) return false;
    return experts_of_layer(module) > 1 &&
           std::ranges::all_of(module.params, [&](const ir::Param& param) {
             return gpu_refusal(Role::Experts, param).empty() &&
                    experts_of(module, param, {0}).ok();
           });
  }

  CompileState& state_;
  std::vector<ir::Module>& modules_;
};

// For execution: what cannot run where it is goes to the CPU, with one warning for each
// device that was requested.
void move_to_cpu(CompileState& state) {
  struct Asked {
    int64_t modules = 0;
    int32_t rule = -1;
  };
  std::map<std::string, Asked> asked;
  const auto refuse = [&](const ir::Module& module, const std::string& device) {
    const bool named = !device.empty() && device != "cpu" && device != "auto";
    if (!named || module.decision.rule < 0) return;
    Asked& entry = asked[device];
    if (entry.modules++ == 0) entry.rule = module.decision.rule;
  };
  for (ir::Module& module : state.modules.modules) {
    ir::Decision& decision = module.decision;
    std::erase_if(decision.expert_sets, [&](const ir::ExpertSet& set) {
      if (has_device(state.target, set.device)) return false;
      refuse(module, set.device);
      return true;
    });
    if (has_device(state.target, decision.device)) continue;
    refuse(module, decision.device);
    const std::string beside = target::cpu_beside(decision.device);
    decision.device = has_device(state.target, beside) ? beside : "cpu";
    std::erase_if(decision.expert_sets,
                  [&](const ir::ExpertSet& set) { return set.device == decision.device; });
  }
  for (const auto& [device, entry] : asked) {
    const rules::Rule& rule = state.rules.rules[static_cast<size_t>(entry.rule)];
    const bool has_gpus = !all_gpus(state.target).empty();
    Diagnostic& diag =
        state.diags->warning(rule.replace.device             ? rule.replace.device->loc
                             : !rule.replace.experts.empty() ? rule.replace.experts[0].device.loc
                                                             : rule.loc,
                             "D004",
                             fmt::format("the target has no device '{}': {} modules go to the CPU",
                                         device, entry.modules));
    diag.in_group("no gpu");
    if (!has_gpus) diag.help("to compile for another machine, name it: --target=h200");
  }
}

// Modules with weights that no GPU kernel reads stay on the CPU: what a rule wanted otherwise is a
// warning.
void keep_unknown_formats(CompileState& state) {
  for (ir::Module& module : state.modules.modules) {
    if (std::ranges::all_of(devices_of(module), target::is_cpu)) continue;
    for (const ir::Param& param : module.params) {
      const std::string why = gpu_refusal(module.role, param);
      if (why.empty()) continue;
      const rules::Rule* rule = module.decision.rule < 0
                                    ? nullptr
                                    : &state.rules.rules[static_cast<size_t>(module.decision.rule)];
      const auto& device = rule ? rule->replace.device : std::nullopt;
      const bool sets = rule && !rule->replace.experts.empty();
      const bool asked = sets || (device && device->text != "auto");
      const std::string text = fmt::format("{}: {}; it stays on the CPU", module.path, why);
      Diagnostic& diag =
          asked ? state.diags->warning(sets ? rule->replace.experts[0].device.loc : device->loc,
                                       "Q001", text)
                : state.diags->note({}, "", text);
      diag.in_group(fmt::format("{} of {}", why, module.decision.rule));
      if (asked) {
        diag.help("write device: cpu, or use a file with Q4_0, Q4_K, MXFP4 or larger types there");
      }
      module.decision.device = target::cpu_beside(module.decision.device);
      module.decision.expert_sets.clear();
      break;
    }
  }
}

// A delta net whose heads no GPU kernel takes has its two steps with a state on the CPU; its
// products stay where they were placed.
void keep_states(CompileState& state) {
  const ir::Module* first = nullptr;
  const rules::Rule* asked = nullptr;  // for one of them
  int64_t count = 0;
  for (ir::Module& module : state.modules.modules) {
    const auto* net = std::get_if<ir::DeltaNetInfo>(&module.info);
    if (net == nullptr || target::is_cpu(module.decision.device)) continue;
    if (kernels::gpu_delta_rule_takes(net->head_dim)) continue;
    module.decision.device = target::cpu_beside(module.decision.device);
    ++count;
    if (first == nullptr) first = &module;
    if (asked != nullptr || module.decision.rule < 0) continue;
    const rules::Rule& rule = state.rules.rules[static_cast<size_t>(module.decision.rule)];
    if (rule.replace.device && rule.replace.device->text != "auto") asked = &rule;
  }
  if (first == nullptr) return;
  const std::string text = fmt::format(
      "{} and {} more: no GPU kernel computes a gated delta rule of heads of {}; it stays on the CPU, "
      "the products around it do not",
      first->path, count - 1, std::get<ir::DeltaNetInfo>(first->info).head_dim);
  if (asked != nullptr) {
    state.diags->warning(asked->replace.device->loc, "Q001", text);
  } else {
    state.diags->note({}, "", text);
  }
}

// What is placed by bytes leaves out GPUs that no kernel is built for.
void tell_of_old_gpus(const CompileState& state) {
  for (size_t host = 0; host < std::max<size_t>(state.target.hosts.size(), 1); ++host) {
    const std::vector<target::GpuTarget>& gpus = gpus_of(state.target, host);
    for (size_t i = 0; i < gpus.size(); ++i) {
      const target::GpuTarget& gpu = gpus[i];
      if (!target::too_old(gpu)) continue;
      const std::string name = target::device_on(host == 0 ? "" : state.target.hosts[host].name,
                                                 fmt::format("cuda:{}", i));
      state.diags
          ->warning({}, "D001",
                    fmt::format("{} ({}, compute capability {}.{}) is too old: kernels exist "
                                "for {} and newer, and nothing is placed there by itself",
                                name, gpu.name, gpu.compute_major, gpu.compute_minor,
                                target::oldest_gpu()))
          .in_group("old gpu");
    }
  }
}

}  // namespace

Status place_devices(CompileState& state) {
  const bool several = !state.target.gpus.empty() || has_hosts(state.target);
  if (state.check.only || several) Placer(state).run();
  if (state.check.only) {
    settle_streams(state);
    return {};
  }
  move_to_cpu(state);
  tell_of_old_gpus(state);
  keep_unknown_formats(state);
  keep_states(state);
  settle_streams(state);
  return {};
}

}  // namespace ktx::passes
