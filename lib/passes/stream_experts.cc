#include "lib/passes/stream_experts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/matmul/retile.h"
#include "lib/passes/chunk_tokens.h"
#include "lib/passes/estimate.h"
#include "lib/passes/expert_groups.h"
#include "lib/passes/pass_time.h"

namespace ktx::passes {
namespace {

using launches::Preferences;

// Of few tokens an expert the CPU reaches less than of many: fewer tokens are enough.
constexpr double kFewTokens = 0.75;
constexpr int64_t kStep = 32;
constexpr int64_t kMostTokens = 4096;

void set(CompileState& state, int64_t tokens) {
  state.prefer.stream_tokens = tokens;
  state.check.shape.step_tokens = chunk_tokens(state.modules, tokens);
}

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
    if (module.role != ir::Role::Experts || module.decision.device != "cpu") continue;
    const std::string& gpu = devices[module.layer];
    if (gpu.starts_with("cuda") && can_be_streamed(module)) all[gpu].push_back(&module);
  }
  return all;
}

// Tokens from which on the copy of these experts takes less time than computing them.
double break_even(const CompileState& state, const std::string& device,
                  const std::vector<const ir::Module*>& experts) {
  const DeviceRates cpu = rates_of(state.target, "cpu"), gpu = rates_of(state.target, device);
  double bytes = 0, operations = 0;  // of a token
  for (const ir::Module* module : experts) {
    const auto& info = std::get<ir::ExpertsInfo>(module->info);
    bytes += static_cast<double>(bytes_on(*module, "cpu", placed_bytes(*module)));
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

bool can_be_streamed(const ir::Module& module) {
  return module.role == ir::Role::Experts && std::holds_alternative<ir::ExpertsInfo>(module.info) &&
         std::ranges::all_of(module.params, [](const ir::Param& param) {
           if (param.name.ends_with("_factors")) return false;  // which no GPU kernel applies
           return param.rows == 1 || param.name.ends_with("bias") ||
                  kernels::retile_takes(param.dtype, Layout::Panel16);
         });
}

void assume_streams(CompileState& state, bool streams) {
  if (state.prefer.stream_chosen) return;
  set(state, streams ? kMostTokens : 0);
}

void choose_stream_tokens(CompileState& state) {
  if (state.prefer.stream_chosen) return;
  double tokens = 0;
  for (const auto& [device, experts] : streamed_by(state)) {
    tokens = std::max(tokens, break_even(state, device, experts));
  }
  if (tokens <= 0 || tokens * kFewTokens > kMostTokens) return set(state, 0);
  const auto steps = static_cast<int64_t>(std::ceil(tokens * kFewTokens / kStep));
  set(state, std::max<int64_t>(1, steps) * kStep);
}

}  // namespace ktx::passes
