#include "lib/runtime/engine/open_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/plan/state_layout.h"
#include "lib/support/memory_node.h"

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

}  // namespace

Result<Isa> isa_of_run(const plan::PlanView& plan, const EngineOptions& options) {
  const Isa isa = options.isa ? KTX_TRY(usable_isa(name(*options.isa))) : detect_isa();
  KTX_TRY(check_isa(plan, isa));
  return isa;
}

Result<KvPools> open_pools(const plan::PlanView& plan, const Sizes& sizes) {
  KvPools kv = KTX_TRY(KvPools::create(plan.program->kv_slots, sizes.shape.kv_type, sizes.kv_blocks,
                                       plan::slots_on(plan, "cpu")));
  kv.set_states(StatePool(plan::state_layout(plan, "cpu").floats(),
                          static_cast<int64_t>(sizes.kv_blocks.states)));
  return kv;
}

OpenedThreads open_threads(const EngineOptions& options, const target::Target& host) {
  const int threads = options.threads > 0 ? options.threads : host.cpu.default_threads();
  OpenedThreads opened;
  opened.places = choose_places(options, threads);
  opened.pool = options.pool ? options.pool : std::make_shared<ThreadPool>(opened.places.threads);
  return opened;
}

std::unique_ptr<WarmUp> open_warm_up(const plan::PlanFile& plan, const target::ThreadPlaces& places,
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
  return std::make_unique<WarmUp>(plan, WarmUp::Weights::All, std::move(runs), places.nodes);
}

}  // namespace ktx::runtime
