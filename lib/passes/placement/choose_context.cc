// Finds the largest context, in whole blocks of the cache, for which the model fits the target:
// only where `--ctx max` asks for it.
//
// Everything that no rule holds gives way to the context: experts first, then whole layers go to
// the CPU (find_placement.h). More memory of any device never gives less, but where too little of
// it puts experts on disk: then a context that leaves room for one layer's experts fits. Notes say
// what less of a context would keep:
//
//   note: --ctx max: 40960 tokens fit, all that the model was made for
//   note: with 12416 tokens 17 more layers would be on GPUs
//   note: with 8192 tokens there is room to stream experts in long prompts
#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/placement/find_placement.h"
#include "lib/passes/placement/stream_experts.h"
#include "lib/plan/largest_context.h"

namespace ktx::passes {

namespace {

constexpr int64_t kBlock = plan::kKvBlockTokens;
constexpr int64_t kMostPositions = int64_t{1} << 24;  // exact as F32 up to here

// A placement that is tried.
struct Trial {
  bool fits = false;
  bool fits_with_disk = false;  // for the experts of the CPU
  bool memory_known = false;
  int layers_on_gpus = 0;  // by their attention
};

class Search {
 public:
  static Result<Search> make(const PricedModel& model) {
    return Search(model, KTX_TRY(MemoryFormulas::make(model)));
  }

  int64_t most() const { return most_; }

  // A trial with a context of `ctx` tokens, with room to stream experts or without.
  Result<Trial> place(int64_t ctx, bool streams) const {
    DiagSink unheard;
    PricedModel tried = model_;
    tried.check.largest_ctx = false;
    tried.check.target_given = true;
    tried.check.shape.ctx = ctx;
    if (!tried.prefer.stream_chosen) {
      tried.prefer.stream_chosen = true;
      tried.streams.tokens = streams ? 1 : 0;
      tried.streams.way = stream_ways(tried).front();  // which takes the least memory
    }
    const Placement placement = find_placement(tried, unheard).placement;
    const Estimate estimate = KTX_TRY(memory_of(tried, formulas_, placement));
    const auto any = [&](auto is) { return std::ranges::any_of(estimate.devices, is); };
    Trial trial;
    trial.memory_known = any([](const DeviceUse& use) { return use.capacity > 0; });
    const bool in_budget =
        estimate.budget_tokens < 0 || estimate.budget_tokens >= ctx * estimate.shape.max_batch;
    trial.fits = in_budget && !any([](const DeviceUse& use) { return use.too_small(); });
    trial.fits_with_disk = in_budget && !any([](const DeviceUse& use) {
                             return use.too_small() && !use.needs_disk();
                           });
    for (const ir::Module& module : tried.modules.modules) {
      const bool attention = ir::kind_of(module.role) == ir::Kind::Attention;
      const bool on_cpu = placement.at(tried.modules, module).device.is_cpu();
      trial.layers_on_gpus += attention && !on_cpu ? 1 : 0;
    }
    // A room for streams that no expert uses is none.
    const bool streamed = any([](const DeviceUse& use) { return use.stream_bytes > 0; });
    if (streams && !streamed) trial.fits = false;
    return trial;
  }

 private:
  Search(const PricedModel& model, MemoryFormulas formulas)
      : model_(model), formulas_(std::move(formulas)) {
    const int64_t model_ctx = model.modules.facts.context_length;
    most_ = model_ctx > 0 ? std::min(model_ctx, kMostPositions) : kMostPositions;
  }

  PricedModel model_;
  MemoryFormulas formulas_;
  int64_t most_ = 0;
};

// What a shorter context than `ctx` keeps: layers on GPUs, as the usual one has them, and room to
// stream.
Status add_alternatives(const Search& search, int64_t usual, int64_t ctx, Diagnostic& diag) {
  const Trial best = KTX_TRY(search.place(std::min(ctx, usual), false));
  const Trial found = KTX_TRY(search.place(ctx, false));
  if (found.layers_on_gpus < best.layers_on_gpus) {
    const int64_t keeps = KTX_TRY(plan::largest_context(ctx, [&](int64_t tokens) -> Result<bool> {
      const Trial trial = KTX_TRY(search.place(tokens, false));
      return trial.fits && trial.layers_on_gpus >= best.layers_on_gpus;
    }));
    const int more = best.layers_on_gpus - found.layers_on_gpus;
    diag.note(fmt::format("with {} tokens {} more layer{} would be on GPUs", keeps, more,
                          more == 1 ? "" : "s"));
  }
  const auto streams = [&](int64_t tokens) -> Result<bool> {
    return KTX_TRY(search.place(tokens, true)).fits;
  };
  const int64_t room = KTX_TRY(plan::largest_context(ctx, streams));
  if (room > 0 && room < ctx) {
    diag.note(fmt::format("with {} tokens there is room to stream experts in long prompts", room));
  }
  return {};
}

}  // namespace

Status choose_context(CompileState& state) {
  if (!state.check.largest_ctx) return {};
  const Search search = KTX_TRY(Search::make(PricedModel(state)));
  const auto largest = [&](bool Trial::*fits) {
    return plan::largest_context(search.most(), [&](int64_t tokens) -> Result<bool> {
      return KTX_TRY(search.place(tokens, false)).*fits;
    });
  };
  if (!KTX_TRY(search.place(kBlock, false)).memory_known) {
    state.diags->error({}, "", "--ctx max: the memory of the machine is not known")
        .help("name it: --target=rtx-4090, or a file");
    return {};
  }
  int64_t ctx = KTX_TRY(largest(&Trial::fits));
  const bool disk = ctx == 0;
  if (disk) ctx = KTX_TRY(largest(&Trial::fits_with_disk));
  const int64_t usual = state.check.shape.ctx;
  // Where none fits check-memory says so.
  state.check.shape.ctx = std::max(ctx, kBlock);
  if (ctx == 0) return {};
  const char* const why = ctx == search.most() ? ", all that the model was made for" : "";
  Diagnostic& diag = state.diags->note({}, "", fmt::format("--ctx max: {} tokens fit{}", ctx, why));
  if (disk) {
    diag.note("they leave main memory for one layer's experts; fewer leave more");
    return {};
  }
  return add_alternatives(search, usual, ctx, diag);
}

}  // namespace ktx::passes
