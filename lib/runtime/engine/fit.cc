#include "lib/runtime/engine/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/plan/given_rows.h"
#include "lib/plan/most_chunk.h"
#include "lib/plan/plan_hosts.h"
#include "lib/plan/state_layout.h"
#include "lib/runtime/cache/kv_cache.h"
#include "lib/runtime/gpu/gpu_buckets.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

constexpr int64_t kMaxBatch = 4096;
constexpr int64_t kMaxText = 65536;  // of an encoder on the CPU

Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Error{fmt::format("{} is {}, expected {} to {}", name, value, low, high)};
}

// The largest context, in whole blocks, whose cache takes at most `bytes`.
int64_t ctx_for(const Sizes& sizes, uint64_t bytes) {
  const uint64_t windows = sizes.memory.kv_token.times(sizes.kv_blocks.passing()).value_or(bytes);
  const uint64_t block = sizes.memory.kv_token.whole * KvCache::kBlockTokens *
                         static_cast<uint64_t>(sizes.shape.max_batch);
  if (block == 0 || windows >= bytes) return 0;
  const auto blocks = static_cast<int64_t>((bytes - windows) / block);
  return std::min(sizes.shape.ctx, blocks * KvCache::kBlockTokens);
}

// The rows of a table of positions; INT64_MAX: the model has none.
int64_t positions_of(const plan::PlanView& plan) {
  int64_t positions = INT64_MAX;
  for (const program::Step& step : plan.program->steps) {
    const auto* attrs = std::get_if<EmbedRowAttrs>(&step.attrs);
    if (attrs == nullptr || attrs->row >= 0) continue;
    positions = std::min(positions, plan.program->blobs[step.weights[0]].rows);
  }
  return positions;
}

std::string row(const char* what, uint64_t bytes, const std::string& why) {
  return fmt::format("  {:<14}{:>12}  {}\n", what, human_bytes(bytes), why);
}

}  // namespace

Result<Sizes> choose_sizes(const plan::PlanView& plan, const EngineOptions& options) {
  Sizes sizes;
  const plan::PlanFacts& facts = plan.facts;
  sizes.precision =
      options.precision.value_or(facts.precision == "exact" ? Precision::Exact : Precision::Fast);
  sizes.shape.ctx = options.ctx.value_or(facts.default_ctx);
  sizes.shape.max_batch = options.max_batch.value_or(facts.max_batch);
  KTX_TRY(check_range("the context (--ctx)", sizes.shape.ctx, 1, kMaxCtx));
  KTX_TRY(check_range("the batch (--max-batch)", sizes.shape.max_batch, 1, kMaxBatch));
  const int64_t chunk = options.chunk_tokens.value_or(facts.chunk_tokens);
  KTX_TRY(check_range("the chunk (--chunk)", chunk, 1, plan::kMostChunk));
  if (facts.rotary_ctx > 0 && sizes.shape.ctx > facts.rotary_ctx) {
    return Error{
        fmt::format("--ctx {} is more than the {} tokens that the plan's rotary factors (longrope) "
                    "are for; compile the model again with --ctx {}",
                    sizes.shape.ctx, facts.rotary_ctx, sizes.shape.ctx)};
  }
  if (facts.context_length > 0 && sizes.shape.ctx > facts.context_length) {
    sizes.notes.push_back(fmt::format("--ctx {} is more than the {} tokens the model was made for",
                                      sizes.shape.ctx, facts.context_length));
  }
  if (const int64_t positions = positions_of(plan); sizes.shape.ctx > positions) {
    return Error{fmt::format("--ctx {} is more than the {} tokens that the model has positions for",
                             sizes.shape.ctx, positions)};
  }
  // A step has at least one token of every sequence, and no more than all contexts.
  sizes.shape.step_tokens =
      std::max(sizes.shape.max_batch, std::min(chunk, sizes.shape.ctx * sizes.shape.max_batch));
  if (facts.encoder) {  // a text is one step
    KTX_TRY(check_range("the context (--ctx) of a model that reads a text as a whole",
                        sizes.shape.ctx, 1,
                        plan::any_host_uses_gpus(plan) ? plan::kMostChunk : kMaxText));
    sizes.shape.step_tokens = std::max(sizes.shape.step_tokens, sizes.shape.ctx);
    if (facts.context_length > 0 && sizes.shape.ctx > facts.context_length) {
      return Error{
          fmt::format("--ctx {} is more than the {} tokens that the model has positions for",
                      sizes.shape.ctx, facts.context_length)};
    }
  }
  KTX_TRY(check_range("the number of logits rows of a sequence", options.sequence_logits, 1, 64));
  sizes.shape.step_outputs =
      options.all_logits || facts.encoder
          ? sizes.shape.step_tokens
          : std::min(sizes.shape.step_tokens, sizes.shape.max_batch * options.sequence_logits);

  if (facts.is_tower()) {  // a row of each square
    sizes.shape.step_outputs = std::min(facts.image.tokens(), sizes.shape.step_tokens);
  }
  const plan::KvType by_plan = plan::kv_type_from_name(facts.kv_type).value_or(plan::KvType::F16);
  sizes.shape.kv_type = options.kv_type.value_or(by_plan);
  if (sizes.precision == Precision::Exact) {
    if (options.kv_type && *options.kv_type != plan::KvType::F32) {
      sizes.notes.push_back(fmt::format("exact precision keeps the KV cache in F32, not in {}",
                                        name(*options.kv_type)));
    }
    sizes.shape.kv_type = plan::KvType::F32;
  }

  sizes.shape.state_bytes = plan::state_layout(plan).bytes();
  KTX_TRY(check_range("the number of tokens to take back", options.rollback_tokens, 0, 64));
  if (sizes.shape.state_bytes > 0) sizes.shape.rollback_tokens = options.rollback_tokens;
  sizes.memory = KTX_TRY(plan::estimate_memory(plan, sizes.shape));
  KTX_TRY(size_cache(plan, options, sizes));
  return sizes;
}

Status size_cache(const plan::PlanView& plan, const EngineOptions& options, Sizes& sizes) {
  const int64_t budget = options.kv_budget_bytes.value_or(plan.facts.kv_budget_bytes);
  if (budget < 0) return Error{fmt::format("the KV budget is {}, expected 0 or more", budget)};
  plan::MemoryEstimate& memory = sizes.memory;
  sizes.kv_blocks = KTX_TRY(plan::kv_blocks(plan::kv_widths(plan.program->kv_slots), sizes.shape,
                                            memory.kv_token, static_cast<uint64_t>(budget)));
  const auto tokens = static_cast<int64_t>(sizes.kv_blocks.whole) * KvCache::kBlockTokens;
  constexpr std::string_view kNote = "the KV budget";
  std::erase_if(sizes.notes, [&](const std::string& note) { return note.starts_with(kNote); });
  if (tokens < sizes.shape.ctx) {
    sizes.notes.push_back(fmt::format("{} of {} holds {} tokens, fewer than a context of {}", kNote,
                                      human_bytes(budget), tokens, sizes.shape.ctx));
  }
  memory.kv_blocks = sizes.kv_blocks;
  memory.kv_bytes = memory.kv_token.times(sizes.kv_blocks).value_or(0);
  memory.state_bytes = sizes.kv_blocks.states * sizes.shape.state_bytes;
  memory.total_bytes = memory.weight_bytes + memory.working_bytes();
  return {};
}

namespace {

// Reduces the memory of all devices to the part of this host's CPU.
Status take_own_memory(const plan::PlanView& plan, Sizes& sizes) {
  const plan::DeviceMemory own = KTX_TRY(plan::memory_by_device(plan, sizes.shape)).front();
  plan::MemoryEstimate& memory = sizes.memory;
  memory.weight_bytes = own.weight_bytes;
  // Rows that come with tokens are gathered in pinned memory (gpu_batch.h).
  const int64_t given = plan::given_floats_on_gpus(plan) * sizes.shape.step_tokens;
  memory.arena_bytes = own.arena_bytes + static_cast<uint64_t>(given) * sizeof(float);
  memory.kv_token = own.kv_token;
  memory.kv_bytes = own.kv_token.times(sizes.kv_blocks).value_or(0);
  memory.state_bytes = own.state_slot_bytes * sizes.kv_blocks.states;
  memory.total_bytes = memory.weight_bytes + memory.working_bytes();
  return {};
}

// The sizes of a plan with GPUs: chunks that keep them busy, room for the padding of
// graphs, and of the memory the part that is the host's.
Status size_for_gpus(const plan::PlanView& plan, const EngineOptions& options, Sizes& sizes) {
  constexpr int64_t kGpuChunk = 1024;
  if (!options.chunk_tokens) {
    sizes.shape.step_tokens = std::max(
        sizes.shape.step_tokens, std::min(kGpuChunk, sizes.shape.ctx * sizes.shape.max_batch));
    if (options.all_logits || (plan.facts.encoder && !plan.facts.is_tower()))
      sizes.shape.step_outputs = sizes.shape.step_tokens;
  }
  sizes.shape = gpu_run_shape(sizes.shape);
  // The budget is of all devices; the memory, of the host.
  sizes.memory = KTX_TRY(plan::estimate_memory(plan, sizes.shape));
  KTX_TRY(size_cache(plan, options, sizes));
  return take_own_memory(plan, sizes);
}

}  // namespace

EngineOptions tower_options(EngineOptions options) {
  options.tower = true;
  options.ctx.reset();
  options.largest_ctx = false;
  options.beside.reset();
  options.max_batch = 1;
  options.chunk_tokens.reset();
  options.kv_budget_bytes.reset();
  options.expert_memory_bytes.reset();
  options.lora.clear();
  return options;
}

Result<Sizes> sizes_of_run(const plan::PlanView& plan, const EngineOptions& options) {
  Sizes sizes = KTX_TRY(choose_sizes(plan, options));
  if (plan::any_host_uses_gpus(plan)) {
    KTX_TRY(size_for_gpus(plan, options, sizes));
  } else if (plan::has_hosts(plan)) {
    KTX_TRY(take_own_memory(plan, sizes));
  }
  const uint64_t low_rank =
      options.lora_token_bytes * static_cast<uint64_t>(sizes.shape.step_tokens);
  sizes.lora_bytes = options.lora_bytes;
  sizes.memory.arena_bytes += low_rank;
  sizes.memory.total_bytes += low_rank + sizes.lora_bytes;
  return sizes;
}

uint64_t most_of(uint64_t available) {
  const uint64_t left_alone = std::max(uint64_t{512} << 20, available / 16);
  return available - std::min(available, left_alone);
}

Status check_fit(uint64_t available_bytes, uint64_t memory_bytes, Sizes& sizes) {
  const plan::MemoryEstimate& memory = sizes.memory;
  const uint64_t needed = memory.working_bytes() + sizes.expert_bytes + sizes.lora_bytes;
  if (needed <= available_bytes) {
    if (memory.total_bytes > memory_bytes) {
      sizes.notes.push_back(fmt::format(
          "weights, activations and cache take {}, the memory is {}: parts of the weights will be "
          "read from the file again and again, which is slow",
          human_bytes(memory.total_bytes), human_bytes(memory_bytes)));
    }
    return {};
  }
  const plan::RunShape& shape = sizes.shape;
  std::string text = "the run does not fit the memory:\n";
  text +=
      row("activations", memory.arena_bytes, fmt::format("chunks of {} tokens", shape.step_tokens));
  text += row("KV cache", memory.kv_bytes,
              fmt::format("{} x {} tokens in {}", shape.max_batch, shape.ctx, name(shape.kv_type)));
  if (memory.state_bytes > 0) {
    text += row("states", memory.state_bytes,
                fmt::format("{} sequences and {} snapshots", shape.max_batch,
                            sizes.kv_blocks.states -
                                shape.running_states() * static_cast<uint64_t>(shape.max_batch)));
  }
  if (sizes.expert_slots > 0) {
    text += row("experts", sizes.expert_bytes, fmt::format("{} slots", sizes.expert_slots));
  }
  if (sizes.lora_bytes > 0) text += row("adapters", sizes.lora_bytes, "");
  text += row("together", needed, "");
  text += row("available", available_bytes, fmt::format("of {}", human_bytes(memory_bytes)));
  text += row("(weights)", memory.weight_bytes - sizes.expert_bytes, "mapped, not counted");
  const uint64_t fixed =
      memory.arena_bytes + memory.state_bytes + sizes.expert_bytes + sizes.lora_bytes;
  const uint64_t left = available_bytes - std::min(available_bytes, fixed);
  const int64_t ctx = ctx_for(sizes, left / 10 * 9);
  text += "ways out:\n";
  text += ctx > 0 ? fmt::format("  a shorter context: --ctx {}\n", ctx)
                  : "  a shorter context (--ctx)\n";
  text += fmt::format(
      "  a smaller cache: --kv-type=q8 (half of f16), a lower --max-batch, or "
      "--kv-budget\n");
  if (sizes.expert_slots > 0) text += "  less memory for experts (--expert-memory)\n";
  text += "  more memory for this process, or a plan of a smaller model";
  return Error{text};
}

}  // namespace ktx::runtime
