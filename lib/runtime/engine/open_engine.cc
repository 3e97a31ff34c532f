// Engine::open: maps and checks a plan, chooses sizes and compares them with the machine,
// creates the cache, the threads and what runs the plan's parts.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/plan/device_memory.h"
#include "lib/plan/memory.h"
#include "lib/plan/state_layout.h"
#include "lib/runtime/engine/engine_state.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "lib/support/memory_node.h"
#include "lib/support/strings.h"
#include "lib/target/target.h"
#include "lib/target/thread_places.h"

namespace ktx::runtime {
namespace {

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

void reserve(const plan::PlanView& plan, const plan::RunShape& shape, Batch& batch) {
  batch.ids.resize(shape.step_tokens);
  batch.position.resize(shape.step_tokens);
  batch.text_end.resize(shape.step_tokens);
  batch.sequence.resize(shape.step_tokens);
  if (plan.facts.reads_hidden) batch.hidden.resize(shape.step_tokens * plan.facts.hidden_size);
  batch.output_rows.resize(shape.step_outputs);
  batch.best.resize(shape.step_outputs);
  batch.filter.resize(shape.step_outputs);
  batch.tables.resize(shape.max_batch);
  batch.window_tables.resize(shape.max_batch);
  batch.states.resize(shape.max_batch);
}

// The places of a run's threads; threads without a CPU are scheduled freely.
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
  return Error{
      fmt::format("{}: --huge-pages copies its {} into memory, of which {} are available; "
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

// Sets the context, and the GPUs that had to be opened for it; returns what to tell.
Result<std::string> find_largest_ctx(const plan::PlanView& plan,
                                     const std::optional<uint64_t>& available,
                                     EngineOptions& options) {
  const EarlyGpus gpus = KTX_TRY(EarlyGpus::open(plan, options.open_gpu));
  const LargestCtx found = KTX_TRY(largest_ctx(plan, options, {available, gpus.facts()}));
  options.ctx = found.ctx;
  options.open_gpu = gpus.taker();
  return found.note;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, const EngineOptions& given) {
  const target::Target host = target::detect_host();
  const int threads = given.threads > 0 ? given.threads : host.cpu.default_threads();
  if (given.huge_pages) KTX_TRY(check_copy_fits(path));
  auto state =
      std::make_unique<State>(KTX_TRY(plan::PlanFile::open(path, {.verify_weights = given.verify,
                                                                  .huge_pages = given.huge_pages,
                                                                  .threads = threads,
                                                                  .drafter = given.drafter})));
  State& s = *state;
  const auto build = [&]() -> Status {
    const plan::PlanView& plan = s.plan.view();
    const bool gpus = plan::uses_gpus(plan);
    s.hidden = find_final_hidden(plan);
    s.token_hidden = find_token_hidden(plan);
    std::optional<uint64_t> available = target::available_memory();
    if (available) *available -= std::min(*available, given.reserved_bytes);
    EngineOptions options = given;
    std::string note;
    if (options.largest_ctx) note = KTX_TRY(find_largest_ctx(plan, available, options));
    s.sizes = KTX_TRY(sizes_of_run(plan, options));
    if (!note.empty()) s.sizes.notes.push_back(note);
    if (available) KTX_TRY(check_fit(*available, host.cpu.memory_bytes, s.sizes));
    s.isa = options.isa ? KTX_TRY(usable_isa(name(*options.isa))) : detect_isa();
    KTX_TRY(check_isa(plan, s.isa));

    const plan::RunShape& shape = s.sizes.shape;
    s.kv = KTX_TRY(KvPools::create(plan.kv_slots, shape.kv_type, s.sizes.kv_blocks,
                                   plan::slots_on(plan, "cpu")));
    s.kv.of(KvPool::Whole).set_reclaim([&s] { return s.prefixes.reclaim(); });
    s.kv.of(KvPool::Window).set_reclaim([&s] { return s.prefixes.reclaim_window(); });
    s.kv.set_states(StatePool(plan::state_layout(plan, "cpu").floats(),
                              static_cast<int64_t>(s.sizes.kv_blocks.states)));
    s.kv.states().set_reclaim([&s] { return s.prefixes.reclaim_state(); });
    const target::ThreadPlaces places = choose_places(options, threads);
    s.pool = options.pool ? options.pool : std::make_shared<ThreadPool>(places.threads);
    s.runner = KTX_TRY(PlanRunner::create({.plan = plan,
                                           .launches = s.plan.launches(),
                                           .kv = s.kv,
                                           .pool = *s.pool,
                                           .shape = shape,
                                           .kv_blocks = s.sizes.kv_blocks,
                                           .isa = s.isa,
                                           .precision = s.sizes.precision,
                                           .open_gpu = options.open_gpu,
                                           .gpu_graphs = options.gpu_graphs,
                                           .check_finite = options.check_finite,
                                           .count_experts = options.count_experts,
                                           .on_result = options.on_result}));
    for (const std::string& note : s.runner->notes()) s.sizes.notes.push_back(note);
    reserve(plan, shape, s.batch);
    // Beside GPUs, whose weights have been read by now, for the nodes alone.
    const bool wanted = !gpus || places.nodes.size() > 1;
    if (wanted && s.sizes.memory.total_bytes <= available.value_or(0)) {
      s.warm_up = warm_up(s.plan, places, s.sizes.notes);
    }
    return {};
  };
  const Status built = build();
  if (!built) return Error{fmt::format("{}: {}", path, built.error().message)};
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

}  // namespace ktx::runtime
