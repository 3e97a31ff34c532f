// Checks that each device can hold its modules, and that the KV budget holds a context. Checks
// only targets that the user described; the loader checks the machine at hand.
#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/pass.h"
#include "lib/passes/placement/what_fits.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

// The rule that puts most bytes on a device.
int heaviest_rule(const CompileState& state, const std::string& device) {
  std::map<int, uint64_t> bytes;
  for (const ir::Module& module : state.modules.modules) {
    if (module.decision.device == device && module.decision.rule >= 0) {
      bytes[module.decision.rule] += placed_bytes(module);
    }
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? -1 : most->first;
}

uint64_t sum_of(const Estimate& estimate, uint64_t DeviceUse::*bytes) {
  uint64_t sum = 0;
  for (const DeviceUse& use : estimate.devices) sum += use.*bytes;
  return sum;
}

// For the first device that is too small: what would make all fit, else why nothing does.
void advise(const CompileState& state, const MemoryFormulas& formulas, const Estimate& estimate,
            const DeviceUse& use, Diagnostic& diag) {
  if (estimate.max_ctx > 0 && !use.needs_disk()) {
    diag.help(fmt::format("the largest context that fits is {} tokens (--ctx {})", estimate.max_ctx,
                          estimate.max_ctx));
  }
  const auto first = std::ranges::find_if(estimate.devices, &DeviceUse::too_small);
  if (first->name != use.name) return;
  const std::string bare = fits_without_rules(state);
  const std::string moved = fits_with_moves(state, formulas, use.name);
  for (const std::string& text : {bare, moved}) {
    if (!text.empty()) diag.help(text);
  }
  if (estimate.max_ctx > 0 || !bare.empty() || !moved.empty()) return;
  diag.help(fmt::format(
      "no placement on this machine was found: the weights take {}, its devices in use have {}; a "
      "smaller quantisation is needed (--hf-config config.json --quant Q2_K,Q3_K_M,Q4_K_M compares "
      "some)",
      human_bytes(sum_of(estimate, &DeviceUse::weight_bytes)),
      human_bytes(sum_of(estimate, &DeviceUse::capacity))));
}

// Notes what a token reads from disk, and the speed.
void note_disk(const CompileState& state, Diagnostic& diag) {
  const Result<Estimate> estimate = estimate_of(state);
  if (!estimate || estimate->disk.slots == 0) return;  // other findings say why
  diag.note({}, std::string(trim(disk_notes(*estimate))));
  const ForwardTime& token = estimate->token;
  if (!token.known) return;
  diag.note({}, fmt::format("decode, one sequence: {:.1f} tokens/s with a disk of {:g} GB/s "
                            "(--disk-gbps), {:.1f} with enough memory",
                            1 / token.seconds, estimate->disk_gbps,
                            1 / (token.seconds - token.disk_seconds)));
}

void report(CompileState& state, const MemoryFormulas& formulas, const Estimate& estimate,
            const DeviceUse& use) {
  const bool gpu = !target::is_cpu(use.name);
  const int rule = heaviest_rule(state, use.name);
  const SourceLoc loc = rule < 0 ? SourceLoc{} : state.rules.rules[static_cast<size_t>(rule)].loc;
  const auto nodes = static_cast<uint64_t>(use.numa_nodes);
  const std::string numa =
      nodes > 1 ? fmt::format(" in {} NUMA nodes ({} of {} in each)", nodes,
                              human_bytes(use.total() / nodes), human_bytes(use.capacity / nodes))
                : "";
  const std::string text = fmt::format(
      "{} needs {} and has {}{}: weights {}, keys and values {}, scratch {}, reserve {}", use.name,
      human_bytes(use.total()), human_bytes(use.capacity), numa, human_bytes(use.weight_bytes),
      human_bytes(use.kv_bytes + use.state_bytes), human_bytes(use.scratch_bytes),
      human_bytes(use.reserve_bytes));
  Diagnostic& diag =
      use.needs_disk()
          ? state.diags->warning(loc, "M002", text + "; routed experts are read from disk")
          : state.diags->error(loc, gpu ? "M001" : "M002", text);
  if (rule >= 0) diag.note({}, "this rule puts most of it there");
  if (use.needs_disk()) note_disk(state, diag);
  advise(state, formulas, estimate, use, diag);
}

// Built with USE_NUMA=1, KTransformers copies the experts that it computes on the CPU
// into every node; ktx keeps them once.
void check_copies(CompileState& state, const DeviceUse& use) {
  uint64_t experts = 0;
  int rule = -1;
  for (const ir::Module& module : state.modules.modules) {
    if (module.role != ir::Role::Experts || module.decision.device != use.name) continue;
    experts += placed_bytes(module);
    if (rule < 0) rule = module.decision.rule;
  }
  const auto nodes = static_cast<uint64_t>(use.numa_nodes);
  if (nodes < 2 || use.capacity == 0 || experts <= use.capacity / nodes) return;
  const SourceLoc loc = rule < 0 ? SourceLoc{} : state.rules.rules[static_cast<size_t>(rule)].loc;
  state.diags
      ->warning(loc, "M002",
                fmt::format("with USE_NUMA=1 KTransformers copies the experts on the CPU, {}, into "
                            "each of {} NUMA nodes, which have {}",
                            human_bytes(experts), nodes, human_bytes(use.capacity / nodes)))
      .help("build it without USE_NUMA, or use a smaller quantisation");
}

// A budget may be less than all sequences need at once, but a single one should have room.
void check_budget(CompileState& state, const Estimate& estimate) {
  if (estimate.budget_tokens < 0 || estimate.budget_tokens >= estimate.shape.ctx) return;
  state.diags
      ->warning({}, "S001",
                fmt::format("the KV budget of {} holds {} tokens, fewer than a context of {}",
                            human_bytes(static_cast<uint64_t>(estimate.kv_budget_bytes)),
                            estimate.budget_tokens, estimate.shape.ctx))
      .help(fmt::format("write --ctx {} or less, or a larger --kv-budget", estimate.budget_tokens));
}

}  // namespace

Status check_memory(CompileState& state) {
  const int64_t model_ctx = state.modules.facts.context_length;
  if (model_ctx > 0 && state.check.shape.ctx > model_ctx) {
    state.diags
        ->warning({}, "S001",
                  fmt::format("a context of {} tokens is asked for, but the model was made for {}",
                              state.check.shape.ctx, model_ctx))
        .help(fmt::format("write --ctx {} or less", model_ctx));
  }
  const bool asked = state.check.only ? state.check.target_given : state.check.for_target;
  if (!asked && state.check.kv_budget_bytes == 0) return {};
  const PricedModel model(state);
  const MemoryFormulas formulas = KTX_TRY(MemoryFormulas::make(model));
  const Estimate estimate = KTX_TRY(memory_of(model, formulas, placement_of(state)));
  check_budget(state, estimate);
  if (!asked) return {};
  for (const DeviceUse& use : estimate.devices) {
    const bool theirs = state.check.dialect == rules::Dialect::KTransformers;
    if (use.too_small()) {
      report(state, formulas, estimate, use);
    } else if (theirs && target::is_cpu(use.name)) {
      check_copies(state, use);
    }
  }
  return {};
}

}  // namespace ktx::passes
