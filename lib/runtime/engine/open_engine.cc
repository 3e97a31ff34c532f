// Engine::open: maps and checks a plan, chooses sizes and compares them with the machine,
// creates the cache, the threads and what runs the plan's parts.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/formats/lora_adapter.h"
#include "lib/plan/device_memory.h"
#include "lib/plan/plan_hosts.h"
#include "lib/runtime/engine/engine_state.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "lib/runtime/engine/open_parts.h"
#include "lib/runtime/experts/expert_room.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/runtime/hosts/host_memory.h"
#include "lib/support/strings.h"
#include "lib/target/target.h"

namespace ktx::runtime {
namespace {

void reserve(const plan::PlanView& plan, const plan::RunShape& shape, Batch& batch) {
  batch.ids.resize(shape.step_tokens);
  batch.position.resize(shape.step_tokens);
  batch.text_end.resize(shape.step_tokens);
  batch.sequence.resize(shape.step_tokens);
  batch.hidden.resize(shape.step_tokens * (plan.facts.takes_images ? plan.facts.image.row_width()
                                                                   : plan.facts.given_width));
  if (plan.facts.takes_images) batch.given_row.resize(shape.step_tokens);
  const bool by_axes = std::ranges::any_of(plan.program->steps, [](const program::Step& step) {
    return step.op == StepOp::RopeGrid || step.op == StepOp::EmbedGrid;
  });
  for (std::vector<int32_t>& axis : batch.axes) axis.resize(by_axes ? shape.step_tokens : 0);
  batch.output_rows.resize(shape.step_outputs);
  batch.best.resize(shape.step_outputs);
  batch.filter.resize(shape.step_outputs);
  for (const SequenceKind kind : kBlockKinds) batch.tables[kind].resize(shape.max_batch);
  batch.states.resize(shape.max_batch);
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

// A plan for several hosts needs all of them; one for this machine has nothing to do with others.
Status take_hosts(const plan::PlanView& plan, EngineOptions& options) {
  if (!plan::has_hosts(plan)) {
    options.hosts.reset();
    return {};
  }
  std::vector<std::string> names = plan::host_names(plan);
  const size_t ranks = options.hosts ? static_cast<size_t>(options.hosts->ranks()) : 1;
  if (ranks != names.size()) {
    return Error{fmt::format(
        "the plan is for {} hosts ({}), and {} process{} started; write mpirun -n {} --bind-to none "
        "ktx-run ..., with the hosts in this order",
        names.size(), join(names, ", "), ranks, ranks == 1 ? " was" : "es were", names.size())};
  }
  options.hosts->set_names(std::move(names));
  return {};
}

Result<LoraWeights> take_adapters(const plan::PlanView& plan, const EngineOptions& options) {
  if (!plan::has_hosts(plan)) return LoraWeights::make(plan, options.lora);
  return Error{
      "the plan is for several hosts, where adapters are not supported; compile one for this host"};
}

// Sets the context and the chunk where they depend on what is free, and the GPUs that had to be
// opened for it; returns what to tell.
Result<std::string> choose_by_room(const plan::PlanFile& file,
                                   const std::optional<uint64_t>& available,
                                   EngineOptions& options) {
  const plan::PlanView& plan = file.view();
  const bool enlarge = may_enlarge_chunk(plan, options);
  if (!options.largest_ctx && !enlarge) return std::string();
  const EarlyGpus gpus = KTX_TRY(EarlyGpus::open(plan, options.open_gpu));
  RunRoom room{available, gpus.facts()};
  if (plan.facts.takes_images) KTX_TRY(leave_tower_room(file.path(), options, room));
  if (options.hosts) {
    HostsMemory others = KTX_TRY(memory_of_hosts(plan, *options.hosts));
    room.others = std::move(others.cpus);
    room.gpus.merge(others.gpus);
  }
  std::string note;
  if (options.largest_ctx) {
    LargestCtx found = KTX_TRY(largest_ctx(plan, options, room));
    options.ctx = found.ctx;
    note = std::move(found.note);
  }
  if (enlarge) options.chunk_tokens = KTX_TRY(enlarged_chunk(plan, options, room));
  options.open_gpu = gpus.taker();
  return note;
}

void leave_out_guests(ExpertGuests& guests, const ExpertCache& cache) {
  for (const GuestLayer& layer : guests.layers()) {
    for (const GuestWeight& weight : layer.weights) {
      CachedExperts* const experts = cache.of(weight.from);
      if (experts) experts->leave_out_guests(layer.cpu_places);
    }
  }
}

// The cache of experts, where not all are mapped; else null.
Result<OwnedExpertCache> open_experts(const plan::PlanView& plan, const std::string& path,
                                      const EngineOptions& options, const Sizes& sizes,
                                      const std::optional<FileStamp>& stamp) {
  if (sizes.expert_slots == 0) return OwnedExpertCache();
  ExpertCacheOptions cache = options.expert_cache ? *options.expert_cache : ExpertCacheOptions{};
  cache.slots = sizes.expert_slots;
  if (stamp) cache.reader.stamp = &*stamp;
  return ExpertCache::open(plan, path, cache);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, const EngineOptions& given) {
  const target::Target host = target::detect_host();
  const int threads = given.threads > 0 ? given.threads : host.cpu.default_threads();
  if (given.huge_pages) KTX_TRY(check_copy_fits(path));
  const Result<FileStamp> stamp = stamp_file(path);  // before any of it is read
  auto state =
      std::make_unique<State>(KTX_TRY(plan::PlanFile::open(path, {.verify_weights = given.verify,
                                                                  .huge_pages = given.huge_pages,
                                                                  .threads = threads,
                                                                  .drafter = given.drafter,
                                                                  .tower = given.tower,
                                                                  .own_weights = true})));
  State& s = *state;
  if (stamp && !given.huge_pages) s.opened = *stamp;
  const auto build = [&]() -> Status {
    const plan::PlanView& plan = s.plan.view();
    const bool gpus = plan::uses_gpus(plan);
    s.hidden = find_final_hidden(plan);
    s.kept_hidden = find_kept_hidden(plan);
    std::optional<uint64_t> available = target::available_memory();
    if (available) *available -= std::min(*available, given.reserved_bytes);
    EngineOptions options = given;
    if (!given.lora.empty()) {
      s.lora = KTX_TRY(take_adapters(plan, given));
      options.lora_bytes = s.lora->weight_bytes();
      options.lora_token_bytes = s.lora->room_bytes(1);
    }
    for (const auto& one : given.lora) s.adapters.push_back({one->name, one->path, one->scale});
    KTX_TRY(take_hosts(plan, options));
    s.hosts = options.hosts;
    const std::string note = KTX_TRY(choose_by_room(s.plan, available, options));
    s.sizes = KTX_TRY(sizes_of_run(plan, options));
    if (!note.empty()) s.sizes.notes.push_back(note);
    const FitsGpus fits = [&](const EngineOptions& with) -> Result<bool> {
      if (!gpus) return true;
      const EarlyGpus early = KTX_TRY(EarlyGpus::open(plan, options.open_gpu));
      options.open_gpu = early.taker();
      RunRoom room{std::nullopt, early.facts()};
      if (plan.facts.takes_images) KTX_TRY(leave_tower_room(s.plan.path(), with, room));
      return fits_gpus(plan, with, room.gpus);
    };
    KTX_TRY(choose_expert_slots(plan, options, available, fits, s.sizes));
    if (s.lora) KTX_TRY(s.lora->open(s.sizes.shape.step_tokens));
    if (available) KTX_TRY(check_fit(*available, host.cpu.memory_bytes, s.sizes));
    s.isa = KTX_TRY(isa_of_run(plan, options));

    const plan::RunShape& shape = s.sizes.shape;
    s.cache.open(KTX_TRY(open_pools(plan, s.sizes)), shape.state_bytes);
    const OpenedThreads opened = open_threads(options, host);
    s.pool = opened.pool;
    s.experts = KTX_TRY(open_experts(plan, path, options, s.sizes, s.opened));
    // What is counted by expert is counted where the plan has it.
    if (!options.count_experts) {
      s.guests = ExpertGuests::make(
          plan, options.expert_guests ? *options.expert_guests : ExpertGuestOptions{});
    }
    if (s.experts && s.guests) leave_out_guests(*s.guests, *s.experts);
    const bool noted = s.experts || (s.guests && !options.drafter);
    if (noted) s.expert_note = std::make_unique<ExpertNote>(s.experts.get(), s.guests.get(), path);
    s.runner = KTX_TRY(PlanRunner::create({.plan = plan,
                                           .kv = s.cache.pools(),
                                           .pool = *s.pool,
                                           .shape = shape,
                                           .kv_blocks = s.sizes.kv_blocks,
                                           .isa = s.isa,
                                           .precision = s.sizes.precision,
                                           .open_gpu = options.open_gpu,
                                           .gpu_graphs = options.gpu_graphs,
                                           .check_finite = options.check_finite,
                                           .count_experts = options.count_experts,
                                           .experts = s.experts.get(),
                                           .guests = s.guests.get(),
                                           .lora = s.lora ? &*s.lora : nullptr,
                                           .on_result = options.on_result,
                                           .on_repeat = options.on_repeat,
                                           .cpu_op = options.cpu_op,
                                           .hosts = options.hosts.get(),
                                           .gpu_links = options.gpu_links}));
    for (const std::string& note : s.runner->notes()) s.sizes.notes.push_back(note);
    s.passes.resize(static_cast<size_t>(s.runner->most_forwards()));
    for (Pass& pass : s.passes) reserve(plan, shape, pass.batch);
    // Beside GPUs, whose weights have been read by now, for the nodes alone.
    const bool wanted = !gpus || opened.places.nodes.size() > 1;
    if (wanted && s.sizes.memory.total_bytes <= available.value_or(0)) {
      s.warm_up = s.experts ? std::make_unique<WarmUp>(s.plan, WarmUp::Weights::NoExperts)
                            : open_warm_up(s.plan, opened.places, s.sizes.notes);
    }
    return {};
  };
  const Status built = build();
  if (!built) return Error{fmt::format("{}: {}", path, built.error().message)};
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

}  // namespace ktx::runtime
