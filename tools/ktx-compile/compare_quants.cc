#include "tools/ktx-compile/compare_quants.h"

#include <fmt/format.h>

#include "lib/arch/usual_types.h"
#include "lib/passes/cost/estimate.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"
#include "tools/ktx-compile/compile_inputs.h"
#include "tools/ktx-compile/rate_text.h"

namespace ktx::tools {
namespace {

// Placed anew with these types.
Result<passes::Estimate> estimate_with(const Options& options, const passes::CompileState& placed,
                                       const arch::UsualTypes& types) {
  passes::CompileState state = placed;
  DiagSink unheard;
  state.diags = &unheard;
  state.fact = passes::Fact::Built;
  state.stream_slots.reset();
  state.stream_trials.clear();
  state.prefer = options.prefer;
  for (ir::Module& module : state.modules.modules) module.decision = {};
  arch::take_usual_types(types, state.modules);
  set_run_shape(options, state);
  passes::PassOptions until_placed;
  until_placed.stop_after = "place-devices";
  KTX_TRY(passes::run_passes(state, until_placed));
  return passes::estimate_of(state);
}

uint64_t weights_of(const passes::Estimate& estimate) {
  uint64_t sum = 0;
  for (const passes::DeviceUse& use : estimate.devices) sum += use.weight_bytes;
  return sum;
}

// "cuda:0 22.1 of 24.0, cpu 3.2 of 125.7 GiB"
std::string memory_of(const passes::Estimate& estimate) {
  std::vector<std::string> parts;
  for (const passes::DeviceUse& use : estimate.devices) {
    parts.push_back(use.capacity == 0
                        ? fmt::format("{} {}", use.name, human_bytes(use.total()))
                        : fmt::format("{} {} of {}", use.name, human_bytes(use.total()),
                                      human_bytes(use.capacity)));
  }
  return join(parts, ", ");
}

// "yes", "3.1 GiB of experts on disk", "no: 3.1 GiB too much on cpu"
std::string fits(const passes::Estimate& estimate) {
  std::string text = "yes";
  for (const passes::DeviceUse& use : estimate.devices) {
    if (use.capacity == 0) return "?";
    if (use.needs_disk()) {
      text = human_bytes(use.total() - use.capacity) + " of experts on disk";
    } else if (use.too_small()) {
      return fmt::format("no: {} too much on {}", human_bytes(use.total() - use.capacity),
                         use.name);
    }
  }
  return text;
}

std::string speed(const passes::ForwardTime& time) {
  if (!time.known) return "?";
  return rate_text(static_cast<double>(time.tokens), time.seconds);
}

}  // namespace

Result<std::string> compare_quants(const Options& options, const passes::CompileState& state) {
  TextTable table({{"types", TextTable::Left},
                   {"weights"},
                   {"fits", TextTable::Left},
                   {"largest context"},
                   {"decode"},
                   {"long prompts"},
                   {"memory", TextTable::Left}});
  for (const std::string& name : options.quants) {
    const auto estimate = KTX_TRY(estimate_with(options, state, *arch::find_usual_types(name)));
    table.add({name, human_bytes(weights_of(estimate)), fits(estimate),
               estimate.max_ctx < 0 ? "?" : fmt::format("{}", estimate.max_ctx),
               speed(estimate.token), speed(estimate.chunk), memory_of(estimate)});
  }
  return table.plain() + "types of usual files of these names; speeds in tokens/s, one sequence\n";
}

}  // namespace ktx::tools
