#include "lib/passes/placement/stream_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/lower/prefill_device.h"
#include "lib/passes/placement/chunk_tokens.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

// With few tokens per expert the CPU reaches a lower rate than with many: fewer are enough.
constexpr double kFewTokens = 0.75;
constexpr int64_t kStep = 32;
constexpr int64_t kLeastChunk = 1024;  // that the runtime takes beside a GPU

// The experts of the CPU beside each GPU.
std::map<DeviceId, std::vector<const ir::Module*>> streamed_by(const PricedModel& model,
                                                               const Placement& placement) {
  auto devices = attention_devices(model.modules, placement);
  std::map<DeviceId, std::vector<const ir::Module*>> all;
  for (const ir::Module& module : model.modules.modules) {
    const DeviceId& own = placement.at(model.modules, module).device;
    if (module.role != ir::Role::Experts || !own.is_cpu()) continue;
    const DeviceId& gpu = devices[module.layer];
    const bool beside = gpu.gpu() >= 0 && gpu.host == own.host;
    if (beside && can_be_streamed(model.rules, module)) all[gpu].push_back(&module);
  }
  return all;
}

// Tokens from which on the copy of these experts takes less time than computing them.
double break_even(const PricedModel& model, const Placement& placement, const DeviceId& device,
                  const std::vector<const ir::Module*>& experts) {
  const DeviceId beside = device.cpu_beside();
  const DeviceRates cpu = rates_of(model.target, beside), gpu = rates_of(model.target, device);
  const auto slots = placement.streams.way.slots.value_or(plan::StreamSlots::Layer);
  double bytes = 0, operations = 0;  // of a token
  for (const ir::Module* module : experts) {
    const auto& info = std::get<ir::ExpertsInfo>(module->info);
    const ModulePlace& place = placement.at(model.modules, *module);
    // Where a layer does not come whole, one that defers experts is fetched for both of its sums.
    const bool twice =
        slots != plan::StreamSlots::Layer && deferred_steps(model.modules, *module, place) > 0;
    const int times = twice ? 2 : 1;
    bytes += times * static_cast<double>(bytes_on(place, beside, placed_bytes(*module)));
    double use = 1;  // of the CPU
    for (const ExpertSplit& split : place.splits) use -= split.use;
    for (const ir::Param& param : module->params) {
      operations += 2.0 * static_cast<double>(param.rows) * static_cast<double>(param.cols) *
                    info.top_k * use / kCpuExpertShare;
    }
  }
  if (operations <= 0 || gpu.pcie <= 0) return 0;
  return bytes / gpu.pcie * cpu.arithmetic / operations;
}

}  // namespace

bool wants_streams(const PricedModel& model, const Placement& placement) {
  return std::ranges::any_of(model.modules.modules, [&](const ir::Module& module) {
    return module.role == ir::Role::Experts &&
           placement.at(model.modules, module).device.is_cpu() &&
           prefill_device(model.rules, module) == PrefillDevice::Gpu;
  });
}

std::vector<StreamWay> stream_ways(const PricedModel& model) {
  const bool chosen = model.prefer.stream_chosen;
  const int64_t tokens = model.streams.tokens;
  std::vector<StreamWay> ways;
  if (!chosen || tokens == 0) ways.push_back({std::nullopt, chunk_tokens(model.modules, 0)});
  if (chosen && tokens == 0) return ways;
  if (chosen && model.streams.way.slots) return {model.streams.way};
  const int64_t most = chunk_tokens(model.modules, 1);
  const int64_t least = chosen ? std::min(tokens, most) : 1;
  for (auto slots = std::rbegin(plan::kStreamSlots); slots != std::rend(plan::kStreamSlots);
       ++slots) {
    for (int64_t chunk = kLeastChunk; chunk <= most; chunk *= 2) {
      if (chunk >= least) ways.push_back({*slots, chunk});
    }
  }
  return ways;
}

void assume_streams(const PricedModel& model, StreamChoice& streams, const StreamWay& way) {
  streams.way = way;
  if (!model.prefer.stream_chosen) streams.tokens = way.slots ? 1 : 0;
}

void choose_stream_tokens(const PricedModel& model, Placement& placement) {
  if (model.prefer.stream_chosen) return;
  double tokens = 0;
  for (const auto& [device, experts] : streamed_by(model, placement)) {
    tokens = std::max(tokens, break_even(model, placement, device, experts));
  }
  StreamChoice& streams = placement.streams;
  const bool wanted = wants_streams(model, placement);
  double steps = std::ceil(tokens * kFewTokens / static_cast<double>(kStep));
  const auto most = static_cast<double>(streams.way.chunk / kStep);
  if (wanted) steps = std::min(steps, most);
  const bool pays = tokens > 0 && steps <= most;
  const int64_t least = std::max<int64_t>(1, static_cast<int64_t>(steps)) * kStep;
  streams.tokens = pays ? least : 0;
  // A rule that wants experts on the GPU in prompts means all of them.
  if (model.prefer.joint_chosen) return;
  const auto even = static_cast<int64_t>(tokens * kFewTokens);
  streams.joint = pays && !wanted ? std::max<int64_t>(1, even) : 0;
}

void take_way(const PricedModel& model, Placement& placement, const StreamWay& way) {
  assume_streams(model, placement.streams, way);
  if (way.slots) choose_stream_tokens(model, placement);
}

std::string settle_streams(const PricedModel& model, Placement& placement,
                           const std::vector<StreamTrial>& trials) {
  if (model.prefer.stream_chosen) return "";
  const std::vector<StreamWay> ways = stream_ways(model);
  if (streamed_by(model, placement).empty()) {
    assume_streams(model, placement.streams, ways.front());
    return "";
  }
  const Result<MemoryFormulas> formulas = MemoryFormulas::make(model);
  if (!formulas) return "";
  std::string full;  // "cuda:0 has no room for the 1.71 GiB"
  const auto streams_and_fits = [&] {
    choose_stream_tokens(model, placement);
    const Result<Estimate> now = memory_of(model, *formulas, placement);
    if (!now || placement.streams.tokens == 0) return false;
    for (const DeviceUse& device : now->devices) {
      if (device.stream_bytes == 0 || !device.too_small()) continue;
      full =
          fmt::format("{} has no room for the {}", device.name, human_bytes(device.stream_bytes));
      return false;
    }
    return true;
  };
  const bool chosen = std::ranges::any_of(
      trials, [](const StreamTrial& trial) { return trial.way.slots.has_value(); });
  if (chosen && (!placement.streams.way.slots || streams_and_fits())) return "";
  for (auto way = ways.rbegin(); way != ways.rend(); ++way) {
    assume_streams(model, placement.streams, *way);
    if (way->slots && streams_and_fits()) return "";
  }
  if (full.empty() || model.check.dialect != rules::Dialect::Ktx) return "";
  return "long prompts are computed by the CPU alone: " + full +
         " that its experts need to be streamed";
}

}  // namespace ktx::passes
