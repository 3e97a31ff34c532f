// Parts of the start of a run that an engine (open_engine.cc) and a host that follows another one's
// (hosts/followed_plan.cc) have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/cpu/warm_up.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/engine/fit.h"
#include "lib/support/thread_pool.h"
#include "lib/target/target.h"
#include "lib/target/thread_places.h"

namespace ktx::runtime {

// As requested, else the machine's best. Fails if the plan's layouts need more.
Result<Isa> isa_of_run(const plan::PlanView& plan, const EngineOptions& options);

// With this host's slots and states; blocks and slots have the numbers that all devices use.
Result<KvPools> open_pools(const plan::PlanView& plan, const Sizes& sizes);

struct OpenedThreads {
  std::shared_ptr<ThreadPool> pool;
  target::ThreadPlaces places;
};
OpenedThreads open_threads(const EngineOptions& options, const target::Target& host);

// Weights go to the nodes whose threads read them, where the system allows it.
std::unique_ptr<WarmUp> open_warm_up(const plan::PlanFile& plan, const target::ThreadPlaces& places,
                                     std::vector<std::string>& notes);

}  // namespace ktx::runtime
