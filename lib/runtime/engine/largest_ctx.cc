#include "lib/runtime/engine/largest_ctx.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/plan/gpu_reserve.h"
#include "lib/plan/largest_context.h"
#include "lib/runtime/engine/fit.h"
#include "lib/runtime/gpu/gpu_fit.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

struct Fit {
  bool blocks = false;  // keys and values of all sequences, as long as they may become
  bool memory = true;
  bool streams = true;  // and there is room to stream experts, where the plan does

  bool fits() const { return blocks && memory; }
};

// What a run of this plan leaves of GPUs; `reserve`: of each, beside what is counted.
Status leave_gpus(const plan::PlanView& beside, const Sizes& sizes, uint64_t reserve,
                  RunRoom& room) {
  for (const plan::DeviceMemory& need : KTX_TRY(plan::memory_by_device(beside, sizes.shape))) {
    const auto gpu = room.gpus.find(need.name);
    if (gpu == room.gpus.end()) continue;
    uint64_t& free = gpu->second.free_bytes;
    // 0 would mean that it is not known.
    if (free > 0) free = std::max<uint64_t>(1, free - std::min(free, need.total() + reserve));
  }
  return {};
}

// What a plan that runs beside it leaves of the room.
Status leave_room(const plan::PlanView& beside, const EngineOptions& options, RunRoom& room) {
  EngineOptions small = options;
  small.sequence_logits = 1;
  const int64_t rotary_ctx = beside.facts.rotary_ctx;
  if (rotary_ctx > 0) small.ctx = std::min(*small.ctx, rotary_ctx);
  const Sizes sizes = KTX_TRY(sizes_of_run(beside, small));
  if (room.host_bytes) {
    *room.host_bytes -= std::min(*room.host_bytes, sizes.memory.total_bytes);
  }
  return leave_gpus(beside, sizes, 0, room);
}

Result<Fit> fit_of(const plan::PlanView& plan, EngineOptions options, RunRoom room, int64_t ctx) {
  options.ctx = ctx;
  if (options.beside) KTX_TRY(leave_room(options.beside->view(), options, room));
  const Sizes sizes = KTX_TRY(sizes_of_run(plan, options));
  const auto wanted = plan::kv_blocks(plan::kv_widths(plan.program->kv_slots), sizes.shape);
  Fit fit{wanted && sizes.kv_blocks.whole >= wanted->whole};
  // Weights count: they are mapped, and would be read from the file again and again.
  fit.memory = !room.host_bytes || sizes.memory.total_bytes <= most_of(*room.host_bytes);
  if (room.gpus.empty() && room.others.empty()) return fit;
  // The smallest slots of streams: room for more is not worth a shorter context.
  constexpr plan::StreamSlots kLeast = plan::StreamSlots::Eighth;
  for (plan::DeviceMemory& need : KTX_TRY(plan::memory_by_device(plan, sizes.shape, kLeast))) {
    const auto other = room.others.find(need.name);
    if (other != room.others.end() && need.total() > most_of(other->second)) fit.memory = false;
    const auto gpu = room.gpus.find(need.name);
    if (gpu == room.gpus.end()) continue;
    fit.streams = fit.streams && check_gpu_fit(need, gpu->second, sizes.shape, sizes.kv_blocks);
    need.stream_bytes = 0;
    fit.memory = fit.memory && check_gpu_fit(need, gpu->second, sizes.shape, sizes.kv_blocks);
  }
  return fit;
}

}  // namespace

Result<EarlyGpus> EarlyGpus::open(const plan::PlanView& plan, const OpenGpu& open_gpu) {
  EarlyGpus early;
  early.gpus_ = std::make_shared<std::map<int, Opened>>();
  for (const std::string& device : plan::plan_devices(plan)) {
    const int number = gpu_number(device);
    if (number < 0) continue;  // the CPU; another name is an error of the start
    auto gpu = (open_gpu ? open_gpu : OpenGpu(runtime::open_gpu))(number);
    if (!gpu) return Error{device + ": " + gpu.error().message};
    const GpuFacts facts = (*gpu)->facts();
    early.gpus_->emplace(number, Opened{device, gpu.take(), facts});
  }
  return early;
}

std::map<std::string, GpuFacts> EarlyGpus::facts() const {
  std::map<std::string, GpuFacts> all;
  for (const auto& [number, opened] : *gpus_) all[opened.device] = opened.facts;
  return all;
}

OpenGpu EarlyGpus::taker() const {
  return [gpus = gpus_](int number) -> Result<std::unique_ptr<Gpu>> {
    const auto found = gpus->find(number);
    KTX_ASSERT(found != gpus->end() && found->second.gpu);
    return std::move(found->second.gpu);
  };
}

Status leave_tower_room(const std::string& path, const EngineOptions& options, RunRoom& room) {
  const plan::PlanFile tower = KTX_TRY(plan::PlanFile::open(path, {.tower = true}));
  const Sizes sizes = KTX_TRY(sizes_of_run(tower.view(), tower_options(options)));
  return leave_gpus(tower.view(), sizes, plan::gpu_reserve_bytes(sizes.shape.step_tokens), room);
}

Result<LargestCtx> largest_ctx(const plan::PlanView& plan, const EngineOptions& options,
                               const RunRoom& room) {
  const int64_t rotary_ctx = plan.facts.rotary_ctx;
  const int64_t model_ctx = rotary_ctx > 0 ? rotary_ctx : plan.facts.context_length;
  const int64_t most = model_ctx > 0 ? std::min(model_ctx, kMaxCtx) : kMaxCtx;
  const auto fits = [&](int64_t ctx) -> Result<bool> {
    return KTX_TRY(fit_of(plan, options, room, ctx)).fits();
  };
  const int64_t ctx = KTX_TRY(plan::largest_context(most, fits));
  if (ctx == 0) {
    return LargestCtx{plan.facts.default_ctx,
                      fmt::format("--ctx max: no context fits beside the weights; {} tokens are "
                                  "the plan's default",
                                  plan.facts.default_ctx)};
  }
  const char* const all = rotary_ctx > 0 ? ", all that the plan's rotary factors (longrope) are for"
                                         : ", all that the model was made for";
  std::string note = fmt::format("--ctx max: {} tokens{}", ctx, ctx == most ? all : " fit");
  const auto streams = [&](int64_t tokens) -> Result<bool> {
    const Fit fit = KTX_TRY(fit_of(plan, options, room, tokens));
    return fit.fits() && fit.streams;
  };
  const int64_t room_to_stream = KTX_TRY(plan::largest_context(ctx, streams));
  if (room_to_stream > 0 && room_to_stream < ctx) {
    note += fmt::format("; --ctx {} would leave room to stream experts in long prompts",
                        room_to_stream);
  }
  return LargestCtx{ctx, std::move(note)};
}

bool fits_gpus(const plan::PlanView& plan, const EngineOptions& options,
               const std::map<std::string, GpuFacts>& gpus) {
  const int64_t ctx = options.ctx.value_or(plan.facts.default_ctx);
  const Result<Fit> fit = fit_of(plan, options, {std::nullopt, gpus}, ctx);
  return fit && fit->memory;
}

bool may_enlarge_chunk(const plan::PlanView& plan, const EngineOptions& options) {
  if (options.chunk_tokens || options.hosts || plan.facts.encoder) return false;
  bool any = false, all = true;
  for (const program::Step& step : plan.program->steps) {
    if (step.op != StepOp::ExpertsGateUp) continue;
    any = true;
    all = all && !target::is_cpu(step.device);
  }
  return any && all;
}

Result<std::optional<int64_t>> enlarged_chunk(const plan::PlanView& plan,
                                              const EngineOptions& options, const RunRoom& room) {
  // H200, Qwen3-30B-A3B: prompts are 1.22 times as fast by 2,048 as by 1,024, and 1.05 to 1.08
  // times as fast by 4,096 (Nemotron 3 Nano: 1.07 to 1.08), for which other sequences would wait.
  constexpr int64_t kAlone = 4096, kBeside = 2048;
  const int64_t ctx = options.ctx.value_or(plan.facts.default_ctx);
  const bool alone = options.max_batch.value_or(plan.facts.max_batch) == 1;
  for (const int64_t chunk : {kAlone, kBeside}) {
    if (plan.facts.chunk_tokens >= chunk) break;
    if (chunk == kAlone && !alone) continue;
    EngineOptions large = options;
    large.chunk_tokens = chunk;
    const Result<Fit> fit = fit_of(plan, large, room, ctx);
    if (fit && fit->fits()) return std::optional(chunk);
  }
  return std::optional<int64_t>();
}

}  // namespace ktx::runtime
