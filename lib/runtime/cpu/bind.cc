#include "lib/runtime/cpu/bind.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention/attention.h"
#include "lib/ops/step_attrs.h"
#include "lib/program/program.h"
#include "lib/program/stages.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

Result<std::unique_ptr<CpuStep>> bind_step(const BindContext& context, CpuOpTable op) {
  const std::string_view device = context.plan.string(context.step.device);
  if (device != "cpu") {
    return Error{
        fmt::format("its device is '{}', expected 'cpu'; compile for the CPU", printable(device))};
  }
  const MakeStep make = op(static_cast<StepOp>(context.step.op));
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
StepFacts facts_of(const plan::PlanView& plan, uint32_t step) {
  const program::Program& program = *plan.program;
  StepFacts facts = program::facts_of(program, program.steps[step], program::Memory::OfBuffers);
  if (shares_partials(facts.op)) {
    facts.accesses.push_back(
        program::slot_access(static_cast<int32_t>(plan.kv_slots.size()), true));
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

}  // namespace

namespace {

// As one over all that it reads.
AttentionAttrs attention_of(const plan::PlanView& plan, const plan::StepRecord& record) {
  const auto op = static_cast<StepOp>(record.op);
  if (op == StepOp::BlockAttention) {
    return whole_attention(plan.attrs_of<BlockAttentionAttrs>(record));
  }
  if (op == StepOp::CompressedAttention) {
    return whole_attention(plan.attrs_of<CompressedAttentionAttrs>(record));
  }
  return plan.attrs_of<AttentionAttrs>(record);
}

}  // namespace

Result<AttentionPartials> make_partials(const plan::PlanView& plan, int64_t ctx) {
  constexpr int64_t kMaxFloats = int64_t{1} << 26, kMaxRows = 1 << 16;
  int64_t floats = 0, rows = 0;
  for (const plan::StepRecord& record : plan.steps) {
    const bool here = plan.string(record.device) == "cpu";
    const auto op = static_cast<StepOp>(record.op);
    if (!here || !shares_partials(op)) continue;
    if (op == StepOp::ChoosePositions || op == StepOp::ChooseBlocks) {
      int64_t most = 0;
      if (op == StepOp::ChoosePositions) {
        most = choice_partial_floats(1, plan.attrs_of<ChoosePositionsAttrs>(record).top_k, ctx);
      } else {
        const auto attrs = plan.attrs_of<ChooseBlocksAttrs>(record);
        most = choice_partial_floats(attrs.heads, attrs.top_k, ctx);
      }
      floats = std::max(floats, most);
      rows = std::max<int64_t>(rows, 1);
      continue;
    }
    const auto attrs = attention_of(plan, record);
    floats = std::max(floats, attrs.heads * ceil_div(ctx, kernels::kAttentionSpan) *
                                  kernels::attention_partial_floats(attrs));
    rows = std::max<int64_t>(rows, attrs.heads);
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
  const auto all = static_cast<uint32_t>(plan.steps.size());
  const uint32_t end = options.first_step + std::min(options.step_count, all - options.first_step);
  for (uint32_t i = options.first_step; i < end; ++i) {
    const plan::StepRecord& record = plan.steps[i];
    if (record.kernel[precision] == plan::kNone) continue;  // quantize in exact precision
    const BindContext context{plan,
                              record,
                              options.arena,
                              options.buffer_offsets,
                              kv,
                              options.isa,
                              precision,
                              options.threads,
                              options.shares,
                              options.partials,
                              options.expert_counts};
    auto step = bind_step(context, options.cpu_op ? options.cpu_op : cpu_op);
    if (!step) {
      return Error{fmt::format("step {} ({} of {}): {} (the plan was made by ktx {}, this is {})",
                               i, info(static_cast<StepOp>(record.op)).name,
                               printable(plan.string(record.module)), step.error().message,
                               printable(plan.provenance.ktx_version), KTX_VERSION)};
    }
    bound.scratch_bytes = std::max(bound.scratch_bytes, (*step)->scratch_bytes());
    bound.steps.push_back({step.take(), i, static_cast<StepOp>(record.op)});
    facts.push_back(facts_of(plan, i));
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
