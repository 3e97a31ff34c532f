#include "lib/runtime/cpu/bind.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention/attention.h"
#include "lib/ops/step_attrs.h"
#include "lib/program/program.h"
#include "lib/program/stages.h"
#include "lib/runtime/cpu/ops/low_rank.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

Result<std::unique_ptr<CpuStep>> bind_step(const BindContext& context, CpuOpTable op) {
  if (context.step.device != "cpu") {
    return Error{fmt::format("its device is '{}', expected 'cpu'; compile for the CPU",
                             printable(context.step.device))};
  }
  const MakeStep make = op(context.step.op);
  if (!make) return Error{"the CPU does not have this op"};
  return make(context);
}

bool shares_partials(StepOp op) {
  static constexpr StepOp kOps[] = {StepOp::Attention,       StepOp::SparseAttention,
                                    StepOp::ChoosePositions, StepOp::BlockAttention,
                                    StepOp::ChooseBlocks,    StepOp::CompressedAttention};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

// What a step touches, for its stage: memory, KV slots, and behind those the partial results.
StepFacts facts_of(const program::Program& program, const program::Step& step) {
  StepFacts facts = program::facts_of(program, step, program::Memory::OfBuffers);
  if (shares_partials(facts.op)) {
    facts.accesses.push_back(
        program::slot_access(static_cast<int32_t>(program.kv_slots.size()), true));
  }
  return facts;
}

// The products of a part share its items: each thread computes a region with the first,
// then with the next one, and after the last goes on with the first in a later item.
void join_products(const std::vector<int32_t>& part, std::vector<BoundStep>& steps) {
  std::vector<CpuStep*> products;
  int64_t columns = 1;
  for (int32_t step : part) {
    if (is_product(steps[step].op)) products.push_back(steps[step].run.get());
    columns = std::max(columns, column_group(steps[step].op));
  }
  steps[part[0]].run->lead_part(static_cast<int64_t>(products.size()), columns);
  for (size_t i = 0; i < products.size(); ++i) {
    const bool later = i + 1 == products.size();
    const kernels::WeightMatrix* next = products[later ? 0 : i + 1]->weight();
    if (next) products[i]->followed_by(*next, later);
  }
}

// As one over all that it reads.
AttentionAttrs attention_of(const StepAttrs& attrs) {
  if (const auto* blocks = std::get_if<BlockAttentionAttrs>(&attrs)) {
    return whole_attention(*blocks);
  }
  if (const auto* compressed = std::get_if<CompressedAttentionAttrs>(&attrs)) {
    return whole_attention(*compressed);
  }
  return std::get<AttentionAttrs>(attrs);
}

}  // namespace

void BoundPlan::add(BoundStep step) {
  scratch_bytes = std::max(scratch_bytes, step.run->scratch_bytes());
  steps.push_back(std::move(step));
}

Result<AttentionPartials> make_partials(const program::Program& program, int64_t ctx) {
  constexpr int64_t kMaxFloats = int64_t{1} << 26, kMaxRows = 1 << 16;
  int64_t floats = 0, rows = 0;
  for (const program::Step& step : program.steps) {
    if (step.device != "cpu" || !shares_partials(step.op)) continue;
    if (const auto* chosen = std::get_if<ChoosePositionsAttrs>(&step.attrs)) {
      floats = std::max(floats, choice_partial_floats(1, chosen->top_k, ctx));
      rows = std::max<int64_t>(rows, 1);
    } else if (const auto* blocks = std::get_if<ChooseBlocksAttrs>(&step.attrs)) {
      floats = std::max(floats, choice_partial_floats(blocks->heads, blocks->top_k, ctx));
      rows = std::max<int64_t>(rows, 1);
    } else {
      const AttentionAttrs attrs = attention_of(step.attrs);
      floats = std::max(floats, attrs.heads * ceil_div(ctx, kernels::kAttentionSpan) *
                                    kernels::attention_partial_floats(attrs));
      rows = std::max<int64_t>(rows, attrs.heads);
    }
  }
  AttentionPartials partials;
  partials.memory =
      KTX_TRY(Arena::allocate(std::min(floats, kMaxFloats) * sizeof(float), "attention scratch"));
  partials.left = std::vector<std::atomic<int64_t>>(std::min(kDecodeTokens * rows, kMaxRows));
  return partials;
}

Result<BoundPlan> bind(const plan::PlanView& plan, const KvPools& kv, const BindOptions& options) {
  BoundPlan bound;
  std::vector<StepFacts> facts;
  const int precision = static_cast<int>(options.precision);
  const program::Program& program = *plan.program;
  const auto all = static_cast<uint32_t>(program.steps.size());
  const uint32_t end = options.first_step + std::min(options.step_count, all - options.first_step);
  for (uint32_t i = options.first_step; i < end; ++i) {
    const program::Step& own = program.steps[i];
    if (own.kernels[precision].empty()) continue;  // quantize in exact precision
    const BindContext context{plan,
                              own,
                              options.arena,
                              options.buffer_offsets,
                              kv,
                              options.isa,
                              precision,
                              options.threads,
                              options.shares,
                              options.partials,
                              options.expert_counts,
                              options.experts,
                              options.guests,
                              options.lora ? options.lora->of_step(i) : nullptr};
    StepFacts own_facts = facts_of(program, own);
    if (context.lora) {
      bound.add({KTX_TRY(make_low_rank(context, *context.lora)), i, StepOp::MatmulHeads, true});
      facts.push_back(low_rank_facts(own_facts, low_rank_room(program, *context.lora, true)));
      own_facts.accesses.push_back(low_rank_room(program, *context.lora, false));
    }
    auto step = bind_step(context, options.cpu_op ? options.cpu_op : cpu_op);
    if (!step) {
      return Error{fmt::format("step {} ({} of {}): {} (the plan was made by ktx {}, this is {})",
                               i, info(own.op).name, printable(own.module), step.error().message,
                               printable(plan.provenance.ktx_version), KTX_VERSION)};
    }
    bound.add({step.take(), i, own.op});
    facts.push_back(std::move(own_facts));
  }
  bound.stages = find_stages(facts);
  for (const Stage& stage : bound.stages) {
    for (const auto& part : stage.parts) {
      if (is_product(facts[part[0]].op)) join_products(part, bound.steps);
    }
  }
  return bound;
}

}  // namespace ktx::runtime
