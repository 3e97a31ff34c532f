#include "lib/runtime/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <cstring>
#include <utility>

#include "lib/plan/device_memory.h"
#include "lib/plan/memory.h"
#include "lib/runtime/arena.h"
#include "lib/runtime/bind.h"
#include "lib/runtime/executor.h"
#include "lib/runtime/final_hidden.h"
#include "lib/runtime/fit.h"
#include "lib/runtime/gpu/gpu_runner.h"
#include "lib/runtime/kv_cache.h"
#include "lib/runtime/prefix_cache.h"
#include "lib/runtime/warm_up.h"
#include "lib/support/memory_node.h"
#include "lib/support/strings.h"
#include "lib/support/thread_pool.h"
#include "lib/target/target.h"
#include "lib/target/thread_places.h"

namespace ktx::runtime {

// In the order of construction: what comes later points into what is before.
struct Engine::State {
  explicit State(plan::PlanFile file) : plan(std::move(file)) {}

  plan::PlanFile plan;
  Sizes sizes;
  Isa isa = Isa::Scalar;
  Arena arena;
  KvCache kv;
  PrefixCache prefixes{kv};
  std::unique_ptr<ThreadPool> pool;
  std::optional<Executor> executor;  // of a plan for the CPU alone
  std::unique_ptr<GpuRunner> gpus;   // of any other
  std::unique_ptr<WarmUp> warm_up;
  Batch batch;
  const float* logits = nullptr;
  int64_t logits_stride = 0;
  Result<FinalHidden> hidden = Error{"not looked for"};
  std::vector<uint64_t> buffer_offsets;  // in the arena
  EngineStats stats;
};

namespace {

Result<Isa> pick_isa(const EngineOptions& options) {
  if (!options.isa) return choose_isa();
  if (*options.isa > detect_isa()) {
    return Error{fmt::format("this machine has no {}", name(*options.isa))};
  }
  return *options.isa;
}

// The requirements that a plan's layouts have.
Status check_isa(const plan::PlanView& plan, Isa isa) {
  for (const std::string& needed : plan.target.required_isa) {
    const auto known = isa_from_name(needed);
    if (known && *known <= isa) continue;
    return Error{fmt::format("the plan needs {}, and this run has {}; compile it for this machine",
                             needed, name(isa))};
  }
  return {};
}

void reserve(Batch& batch, const plan::RunShape& shape) {
  batch.ids.resize(shape.step_tokens);
  batch.position.resize(shape.step_tokens);
  batch.sequence.resize(shape.step_tokens);
  batch.output_rows.resize(shape.step_outputs);
  batch.best.resize(shape.step_outputs);
  batch.tables.resize(shape.max_batch);
}

// The sizes of a plan with GPUs: chunks that keep them busy, room for the padding of
// graphs, and of the memory the part that is the host's.
Status size_for_gpus(const plan::PlanView& plan, const EngineOptions& options, Sizes& sizes) {
  constexpr int64_t kGpuChunk = 1024;
  if (!options.chunk_tokens) {
    sizes.shape.step_tokens = std::max(
        sizes.shape.step_tokens, std::min(kGpuChunk, sizes.shape.ctx * sizes.shape.max_batch));
    if (options.all_logits) sizes.shape.step_outputs = sizes.shape.step_tokens;
  }
  sizes.shape = gpu_run_shape(sizes.shape);
  const plan::DeviceMemory host = KTX_TRY(plan::memory_by_device(plan, sizes.shape)).front();
  plan::MemoryEstimate& memory = sizes.memory;
  memory.weight_bytes = host.weight_bytes;
  memory.arena_bytes = host.arena_bytes;
  memory.kv_token_bytes = host.kv_token_bytes;
  memory.kv_bytes = host.kv_token_bytes * static_cast<uint64_t>(sizes.kv_blocks) *
                    static_cast<uint64_t>(plan::kKvBlockTokens);
  memory.total_bytes = host.weight_bytes + host.arena_bytes + memory.kv_bytes;
  return {};
}

}  // namespace

Status Engine::open_with_gpus(State& s, const EngineOptions& options, int threads) {
  const plan::PlanView& plan = s.plan.view();
  const plan::RunShape& shape = s.sizes.shape;
  s.kv = KTX_TRY(KvCache::create(plan.kv_slots, shape.kv_type, s.sizes.kv_blocks, cpu_slots(plan)));
  s.kv.set_reclaim([&s] { return s.prefixes.reclaim(); });
  s.pool = std::make_unique<ThreadPool>(threads);
  s.gpus = KTX_TRY(GpuRunner::create(plan, s.kv, *s.pool,
                                     {.shape = shape,
                                      .kv_blocks = s.sizes.kv_blocks,
                                      .isa = s.isa,
                                      .precision = s.sizes.precision,
                                      .open = options.open_gpu,
                                      .graphs = options.gpu_graphs,
                                      .check_finite = options.check_finite,
                                      .on_result = options.on_result}));
  for (const std::string& note : s.gpus->notes()) s.sizes.notes.push_back(note);
  reserve(s.batch, shape);
  s.logits = s.gpus->logits();
  s.logits_stride = s.gpus->logits_stride();
  return {};
}

namespace {

// The places of a run's threads; those without processors stay where the system likes.
target::ThreadPlaces choose_places(const EngineOptions& options, int threads) {
  target::ThreadPlaces places;
  if (options.pin != Pin::Off) places = target::place_threads(threads);
  const bool pin = options.pin == Pin::On || places.nodes.size() > 1;
  if (places.threads.empty() || !pin) {
    places.threads.assign(static_cast<size_t>(std::clamp(threads, 1, ThreadPool::kMaxThreads)), {});
    places.nodes.clear();
  }
  return places;
}

// A copy of the plan is memory that the system cannot take back.
Status check_copy_fits(const std::string& path) {
  std::error_code none;
  const uint64_t bytes = std::filesystem::file_size(path, none);
  const std::optional<uint64_t> available = target::available_memory();
  if (none || !available || bytes <= *available) return {};
  return Error{fmt::format("{}: --huge-pages copies its {} into memory, of which {} are available; "
                           "leave it out",
                           path, human_bytes(bytes), human_bytes(*available))};
}

// Weights go to the nodes whose threads read them, where the system allows it.
std::unique_ptr<WarmUp> warm_up(const plan::PlanFile& plan, const target::ThreadPlaces& places,
                                std::vector<std::string>& notes) {
  std::vector<NodeRun> runs = split_weights(plan.view(), static_cast<int>(places.nodes.size()));
  if (!runs.empty()) {
    const Status moved = move_to_node(runs[0].bytes.first(1), places.nodes[0]);
    if (!moved) {
      notes.push_back(fmt::format(
          "weights stay on the NUMA nodes where they are ({}); to spread them, start the first "
          "run with an empty page cache under numactl --interleave=all",
          moved.error().message));
      runs.clear();
    }
  }
  return std::make_unique<WarmUp>(plan, std::move(runs), places.nodes);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path,
                                             const EngineOptions& options) {
  const target::Target host = target::detect_host();
  const int threads = options.threads > 0 ? options.threads : host.cpu.default_threads();
  if (options.huge_pages) KTX_TRY(check_copy_fits(path));
  auto state = std::make_unique<State>(
      KTX_TRY(plan::PlanFile::open(path, {.verify_weights = options.verify,
                                          .huge_pages = options.huge_pages,
                                          .threads = threads})));
  State& s = *state;
  const auto build = [&]() -> Status {
    const plan::PlanView& plan = s.plan.view();
    s.sizes = KTX_TRY(choose_sizes(plan, options));
    const bool gpus = uses_gpus(plan);
    s.hidden = find_final_hidden(plan);
    if (gpus) KTX_TRY(size_for_gpus(plan, options, s.sizes));
    const std::optional<uint64_t> available = target::available_memory();
    if (available) KTX_TRY(check_fit(*available, host.cpu.memory_bytes, s.sizes));
    s.isa = KTX_TRY(pick_isa(options));
    KTX_TRY(check_isa(plan, s.isa));
    if (gpus) return open_with_gpus(s, options, threads);

    const plan::RunShape& shape = s.sizes.shape;
    const plan::ArenaLayout layout =
        KTX_TRY(plan::lay_out_arena(plan.buffers, shape.step_tokens, shape.step_outputs));
    s.arena = KTX_TRY(Arena::allocate(layout.total_bytes, "activations"));
    s.kv = KTX_TRY(KvCache::create(plan.kv_slots, shape.kv_type, s.sizes.kv_blocks));
    s.kv.set_reclaim([&s] { return s.prefixes.reclaim(); });
    const target::ThreadPlaces places = choose_places(options, threads);
    s.pool = std::make_unique<ThreadPool>(places.threads);
    BoundPlan bound = KTX_TRY(bind(plan, s.kv,
                                   {.arena = s.arena.data(),
                                    .buffer_offsets = layout.offsets,
                                    .isa = s.isa,
                                    .precision = s.sizes.precision,
                                    .threads = s.pool->threads(),
                                    .ctx = shape.ctx}));
    s.executor = KTX_TRY(Executor::create(std::move(bound), *s.pool));
    s.buffer_offsets = layout.offsets;
    reserve(s.batch, shape);
    const plan::ValueRecord& logits = plan.values[plan.facts.logits_value];
    s.logits = reinterpret_cast<const float*>(s.arena.data() + layout.offsets[logits.buffer]);
    s.logits_stride = static_cast<int64_t>(plan::value_row_bytes(logits) / sizeof(float));
    if (s.sizes.memory.total_bytes <= available.value_or(0))
      s.warm_up = warm_up(s.plan, places, s.sizes.notes);
    return {};
  };
  const Status built = build();
  if (!built) return Error{fmt::format("{}: {}", path, built.error().message)};
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const plan::PlanView& Engine::plan() const {
  return state_->plan.view();
}
const plan::MemoryEstimate& Engine::memory() const {
  return state_->sizes.memory;
}
const std::vector<std::string>& Engine::notes() const {
  return state_->sizes.notes;
}
int Engine::threads() const {
  return state_->pool->threads();
}
std::vector<Engine::GpuUse> Engine::gpus() const {
  std::vector<GpuUse> all;
  if (!state_->gpus) return all;
  for (const GpuFacts& gpu : state_->gpus->gpus()) all.push_back({gpu.name, gpu.bandwidth_gbps});
  return all;
}
Isa Engine::isa() const {
  return state_->isa;
}
Precision Engine::precision() const {
  return state_->sizes.precision;
}
plan::KvType Engine::kv_type() const {
  return state_->sizes.shape.kv_type;
}
int64_t Engine::ctx() const {
  return state_->sizes.shape.ctx;
}
int64_t Engine::max_batch() const {
  return state_->sizes.shape.max_batch;
}
int64_t Engine::chunk_tokens() const {
  return state_->sizes.shape.step_tokens;
}
int64_t Engine::vocab_size() const {
  return plan().facts.vocab_size;
}
const EngineStats& Engine::stats() const {
  return state_->stats;
}
int64_t Engine::logits_rows() const {
  return state_->batch.outputs;
}

bool Engine::has_logits(int64_t row) const {
  KTX_ASSERT(row >= 0 && row < logits_rows());
  return !state_->gpus || !state_->gpus->keeps_logits() || state_->batch.best[row] < 0;
}

BestLogits Engine::best(int64_t row) const {
  KTX_ASSERT(!has_logits(row));
  return state_->gpus->best(row, state_->batch.best[row]);
}

std::span<const float> Engine::logits(int64_t row) const {
  KTX_ASSERT(has_logits(row));
  return {state_->logits + row * state_->logits_stride, static_cast<size_t>(vocab_size())};
}

Sequence Engine::new_sequence() {
  return Sequence(this);
}

Result<Forward> Engine::forward(std::span<const BatchItem> items) {
  auto result = run(items);
  if (result) return result;
  return Error{fmt::format("{}: {}", state_->plan.path(), result.error().message)};
}

Result<Forward> Engine::run(std::span<const BatchItem> items) {
  State& s = *state_;
  Batch& batch = s.batch;
  batch.tokens = 0;
  batch.outputs = 0;
  const auto max_outputs = static_cast<int64_t>(batch.output_rows.size());
  if (static_cast<int64_t>(items.size()) > max_batch()) {
    return Error{fmt::format("a step of {} sequences, at most {} are possible (--max-batch)",
                             items.size(), max_batch())};
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const BatchItem& item = items[i];
    KTX_ASSERT(item.best <= kMostBestLogits && item.best != 0);
    const auto count = static_cast<int64_t>(item.tokens.size());
    if (count > chunk_tokens() - batch.tokens) {
      return Error{fmt::format("a step of more than {} tokens", chunk_tokens())};
    }
    const int64_t outputs = item.want == Want::All ? count : item.want == Want::Last && count > 0;
    if (outputs > max_outputs - batch.outputs) {
      return Error{fmt::format("a step with more than {} logits rows", max_outputs)};
    }
    const int64_t start = item.sequence->length_;
    if (start + count > ctx()) return Forward::ContextFull;
    for (int64_t t = 0; t < count; ++t) {
      const int32_t id = item.tokens[t];
      if (id < 0 || id >= vocab_size()) {
        return Error{fmt::format("token {} is not in the vocabulary of {}", id, vocab_size())};
      }
      const int64_t row = batch.tokens + t;
      batch.ids[row] = id;
      batch.position[row] = static_cast<int32_t>(start + t);
      batch.sequence[row] = static_cast<int32_t>(i);
      if (count - t <= outputs) {
        batch.best[batch.outputs] = item.best;
        batch.output_rows[batch.outputs++] = static_cast<int32_t>(row);
      }
    }
    batch.tokens += count;
  }
  if (batch.tokens == 0) return Forward::Done;
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = *items[i].sequence;
    if (!s.kv.own(sequence.blocks_, sequence.length_) ||
        !s.kv.grow(sequence.blocks_, sequence.length_ + items[i].tokens.size())) {
      for (const BatchItem& item : items)
        s.kv.shrink(item.sequence->blocks_, item.sequence->length_);
      batch.outputs = 0;
      return Forward::CacheFull;
    }
    batch.tables[i] = sequence.blocks_.data();
  }
  const auto weight_bytes = [&] {
    return s.gpus ? s.gpus->weight_bytes() : s.executor->weight_bytes();
  };
  const int64_t bytes_before = weight_bytes();
  KTX_TRY(s.gpus ? s.gpus->run(batch) : s.executor->run(batch));
  KTX_TRY(s.plan.check());
  for (const BatchItem& item : items) item.sequence->length_ += item.tokens.size();
  s.stats.steps += 1;
  s.stats.tokens += batch.tokens;
  s.stats.weight_bytes += weight_bytes() - bytes_before;
  return Forward::Done;
}

PrefixHit Engine::reuse_prefix(Sequence& sequence, std::span<const int32_t> tokens) {
  const PrefixHit hit = state_->prefixes.reuse(sequence.blocks_, sequence.length_, tokens);
  sequence.length_ = std::max(sequence.length_, hit.tokens);
  return hit;
}

PrefixBlocks Engine::find_prefix(std::span<const int32_t> tokens) const {
  return state_->prefixes.find(tokens);
}

void Engine::keep_prefix(Sequence& sequence, std::span<const int32_t> tokens) {
  KTX_ASSERT(static_cast<int64_t>(tokens.size()) == sequence.length_);
  state_->prefixes.keep(sequence.blocks_, tokens, false);
}

void Engine::retire(Sequence sequence, std::span<const int32_t> tokens) {
  KTX_ASSERT(static_cast<int64_t>(tokens.size()) == sequence.length_);
  state_->prefixes.keep(sequence.blocks_, tokens, true);
}

void Engine::forget_prefix(std::span<const int32_t> tokens) {
  state_->prefixes.forget(tokens);
}

Status Engine::visit_kv(const Sequence& sequence, Visit visit, const VisitRows& call) {
  if (state_->gpus) {
    return state_->gpus->visit_kv(sequence.blocks_, sequence.length_, visit == Visit::Write, call);
  }
  return state_->kv.visit(sequence.blocks_, sequence.length_, call);
}

int64_t Engine::kv_row_bytes() const {
  return state_->kv.token_row_bytes();
}

int64_t Engine::hidden_size() const {
  return plan().facts.hidden_size;
}
int64_t Engine::max_outputs() const {
  return static_cast<int64_t>(state_->batch.output_rows.size());
}

Status Engine::hidden(int64_t row, std::span<float> out) {
  State& s = *state_;
  KTX_ASSERT(row >= 0 && row < logits_rows());
  KTX_ASSERT(static_cast<int64_t>(out.size()) == hidden_size());
  const FinalHidden found = KTX_TRY(s.hidden);
  if (s.gpus) return s.gpus->read(found.device, found.value, row, out);
  const plan::ValueRecord& value = s.plan.view().values[found.value];
  std::memcpy(out.data(),
              s.arena.data() + s.buffer_offsets[value.buffer] +
                  static_cast<uint64_t>(row) * plan::value_row_bytes(value),
              out.size_bytes());
  return {};
}

bool Engine::extend_uncomputed(Sequence& sequence, int64_t tokens) {
  if (!state_->kv.own(sequence.blocks_, sequence.length_)) return false;
  if (!state_->kv.grow(sequence.blocks_, sequence.length_ + tokens)) return false;
  sequence.length_ += tokens;
  return true;
}

CacheState Engine::cache_state() const {
  return {state_->kv.total_blocks(), state_->kv.free_blocks(), state_->kv.idle_blocks()};
}

void Engine::enable_step_stats(bool on) {
  if (state_->gpus) return state_->gpus->enable_times(on);
  state_->executor->enable_times(on);
}

std::vector<StepTime> Engine::step_times() const {
  std::vector<StepTime> rows;
  const bool gpus = state_->gpus != nullptr;
  const auto& times = gpus ? state_->gpus->times() : state_->executor->times();
  for (size_t i = 0; i < times.size(); ++i) {
    const auto record = gpus ? static_cast<uint32_t>(i) : state_->executor->steps()[i].record;
    const plan::StepRecord& step = plan().steps[record];
    rows.push_back({record, plan().string(step.module), info(static_cast<StepOp>(step.op)).name,
                    step.layer, times[i].runs, times[i].tokens, times[i].seconds,
                    times[i].weight_bytes});
  }
  return rows;
}

Result<KernelTime> Engine::time_gpu_steps(std::span<const uint32_t> steps) {
  if (!state_->gpus) return Error{"the plan has no steps on a GPU"};
  return state_->gpus->time_steps(steps);
}

std::vector<uint32_t> Engine::gpu_steps_of_launch(uint32_t step) const {
  return state_->gpus ? state_->gpus->steps_of_launch(step) : std::vector<uint32_t>{step};
}

Sequence::Sequence(Sequence&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      length_(std::exchange(other.length_, 0)),
      blocks_(std::move(other.blocks_)) {
  other.blocks_.clear();
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(engine_, other.engine_);
  std::swap(length_, other.length_);
  std::swap(blocks_, other.blocks_);
  return *this;
}

Sequence::~Sequence() {
  if (engine_) truncate(0);
}

void Sequence::truncate(int64_t length) {
  length_ = std::max<int64_t>(0, std::min(length_, length));
  engine_->state_->kv.shrink(blocks_, length_);
}

}  // namespace ktx::runtime
