#include "lib/passes/stream_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "kernels/matmul/retile.h"
#include "lib/passes/chunk_tokens.h"
#include "lib/passes/conversation_time.h"
#include "lib/passes/deferred_experts.h"
#include "lib/passes/estimate.h"
#include "lib/passes/expert_groups.h"
#include "lib/passes/pass_time.h"
#include "lib/rules/device_name.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

// Of few tokens an expert the CPU reaches less than of many: fewer tokens are enough.
constexpr double kFewTokens = 0.75;
constexpr int64_t kStep = 32;
constexpr int64_t kLeastChunk = 1024;  // that the runtime takes beside a GPU

// The experts of the CPU beside each GPU.
std::map<std::string, std::vector<const ir::Module*>> streamed_by(const CompileState& state) {
  std::map<int32_t, std::string> devices;  // of attention, by layer
  for (const ir::Module& module : state.modules.modules) {
    if (ir::kind_of(module.role) == ir::Kind::Attention) {
      devices[module.layer] = module.decision.device;
    }
  }
  std::map<std::string, std::vector<const ir::Module*>> all;
  for (const ir::Module& module : state.modules.modules) {
    if (module.role != ir::Role::Experts || !target::is_cpu(module.decision.device)) continue;
    const std::string& gpu = devices[module.layer];
    const bool beside = gpu_number(gpu) >= 0 && target::on_same_host(gpu, module.decision.device);
    if (beside && can_be_streamed(state, module)) all[gpu].push_back(&module);
  }
  return all;
}

// Tokens from which on the copy of these experts takes less time than computing them.
double break_even(const CompileState& state, const std::string& device,
                  const std::vector<const ir::Module*>& experts) {
  const std::string beside = target::cpu_beside(device);
  const DeviceRates cpu = rates_of(state.target, beside), gpu = rates_of(state.target, device);
  double bytes = 0, operations = 0;  // of a token
  for (const ir::Module* module : experts) {
    const auto& info = std::get<ir::ExpertsInfo>(module->info);
    // Where a layer does not come whole, one that defers experts is fetched for both of its sums.
    const bool twice =
        deferred_steps(state.modules, *module) > 0 &&
        state.stream_slots.value_or(plan::StreamSlots::Layer) != plan::StreamSlots::Layer;
    const int times = twice ? 2 : 1;
    bytes += times * static_cast<double>(bytes_on(*module, beside, placed_bytes(*module)));
    double use = 1;  // of the CPU
    for (const ir::ExpertSet& set : module->decision.expert_sets) use -= set.use;
    for (const ir::Param& param : module->params) {
      operations += 2.0 * static_cast<double>(param.rows) * static_cast<double>(param.cols) *
                    info.top_k * use / kCpuExpertShare;
    }
  }
  if (operations <= 0 || gpu.pcie <= 0) return 0;
  return bytes / gpu.pcie * cpu.arithmetic / operations;
}

}  // namespace

PrefillDevice prefill_device(const CompileState& state, const ir::Module& experts) {
  const int32_t number = experts.decision.rule;
  if (number < 0 || number >= std::ssize(state.rules.rules)) return PrefillDevice::Open;
  const auto* kwarg =
      state.rules.rules[static_cast<size_t>(number)].replace.kwarg("prefill_device");
  const auto place = kwarg ? rules::parse_device(kwarg->value.text) : std::nullopt;
  using Kind = rules::DeviceSpec::Kind;
  if (!place || place->kind == Kind::Auto || place->kind == Kind::Foreign) {
    return PrefillDevice::Open;
  }
  return place->kind == Kind::Cpu ? PrefillDevice::Cpu : PrefillDevice::Gpu;
}

bool wants_streams(const CompileState& state) {
  return std::ranges::any_of(state.modules.modules, [&](const ir::Module& module) {
    return module.role == ir::Role::Experts && target::is_cpu(module.decision.device) &&
           prefill_device(state, module) == PrefillDevice::Gpu;
  });
}

bool can_be_streamed(const CompileState& state, const ir::Module& module) {
  return module.role == ir::Role::Experts && std::holds_alternative<ir::ExpertsInfo>(module.info) &&
         prefill_device(state, module) != PrefillDevice::Cpu &&
         std::ranges::all_of(module.params, [](const ir::Param& param) {
           if (param.name.ends_with("_factors")) return false;  // which no GPU kernel applies
           return param.rows == 1 || param.name.ends_with("bias") ||
                  kernels::retile_takes(param.dtype, Layout::Panel16);
         });
}

std::vector<StreamWay> stream_ways(const CompileState& state) {
  const launches::Preferences& prefer = state.prefer;
  std::vector<StreamWay> ways;
  if (!prefer.stream_chosen || prefer.stream_tokens == 0) {
    ways.push_back({std::nullopt, chunk_tokens(state.modules, 0)});
  }
  if (prefer.stream_chosen && prefer.stream_tokens == 0) return ways;
  if (prefer.stream_chosen && state.stream_slots) {
    return {{state.stream_slots, state.check.shape.step_tokens}};
  }
  const int64_t most = chunk_tokens(state.modules, 1);
  const int64_t least = prefer.stream_chosen ? std::min(prefer.stream_tokens, most) : 1;
  for (auto slots = std::rbegin(plan::kStreamSlots); slots != std::rend(plan::kStreamSlots);
       ++slots) {
    for (int64_t chunk = kLeastChunk; chunk <= most; chunk *= 2) {
      if (chunk >= least) ways.push_back({*slots, chunk});
    }
  }
  return ways;
}

void assume_streams(CompileState& state, const StreamWay& way) {
  state.stream_slots = way.slots;
  state.check.shape.step_tokens = way.chunk;
  if (!state.prefer.stream_chosen) state.prefer.stream_tokens = way.slots ? 1 : 0;
}

void choose_stream_tokens(CompileState& state) {
  if (state.prefer.stream_chosen) return;
  double tokens = 0;
  for (const auto& [device, experts] : streamed_by(state)) {
    tokens = std::max(tokens, break_even(state, device, experts));
  }
  double steps = std::ceil(tokens * kFewTokens / static_cast<double>(kStep));
  const auto most = static_cast<double>(state.check.shape.step_tokens / kStep);
  if (wants_streams(state)) steps = std::min(steps, most);
  const bool pays = tokens > 0 && steps <= most;
  const int64_t least = std::max<int64_t>(1, static_cast<int64_t>(steps)) * kStep;
  state.prefer.stream_tokens = pays ? least : 0;
  // A rule that wants experts on the GPU in prompts means all of them.
  if (state.prefer.joint_chosen) return;
  const auto even = static_cast<int64_t>(tokens * kFewTokens);
  state.prefer.joint_tokens = pays && !wants_streams(state) ? std::max<int64_t>(1, even) : 0;
}

void take_way(CompileState& state, const StreamWay& way) {
  assume_streams(state, way);
  if (way.slots) choose_stream_tokens(state);
}

std::optional<StreamTrial> predict_trial(const CompileState& state, const StreamWay& way) {
  CompileState copy = state;
  take_way(copy, way);
  if (way.slots && copy.prefer.stream_tokens == 0) return std::nullopt;
  return StreamTrial{way, gpu_expert_use(copy.modules), conversation_time(copy)};
}

void keep_trial(std::vector<StreamTrial>& trials, const StreamTrial& trial) {
  const auto same = std::ranges::find_if(
      trials, [&](const StreamTrial& t) { return t.way.slots == trial.way.slots; });
  if (same == trials.end()) {
    trials.push_back(trial);
  } else if (trial.is_better_than(*same)) {
    *same = trial;
  }
}

void settle_streams(CompileState& state) {
  if (state.prefer.stream_chosen) return;
  const std::vector<StreamWay> ways = stream_ways(state);
  if (streamed_by(state).empty()) return assume_streams(state, ways.front());
  const Result<Estimator> estimator = Estimator::make(state);
  if (!estimator) return;
  std::string full;  // "cuda:0 has no room for the 1.71 GiB"
  const auto streams_and_fits = [&] {
    choose_stream_tokens(state);
    const Result<Estimate> now = estimator->run(state);
    if (!now || state.prefer.stream_tokens == 0) return false;
    for (const DeviceUse& device : now->devices) {
      if (device.stream_bytes == 0 || !device.too_small()) continue;
      full =
          fmt::format("{} has no room for the {}", device.name, human_bytes(device.stream_bytes));
      return false;
    }
    return true;
  };
  const bool chosen = std::ranges::any_of(
      state.stream_trials, [](const StreamTrial& trial) { return trial.way.slots.has_value(); });
  if (chosen && (!state.stream_slots || streams_and_fits())) return;
  for (auto way = ways.rbegin(); way != ways.rend(); ++way) {
    assume_streams(state, *way);
    if (way->slots && streams_and_fits()) return;
  }
  if (full.empty() || state.check.dialect != rules::Dialect::Ktx) return;
  state.diags->note({}, "",
                    "long prompts are computed by the CPU alone: " + full +
                        " that its experts need to be streamed");
}

}  // namespace ktx::passes
