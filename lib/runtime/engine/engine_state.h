// The state of an Engine. open_engine.cc fills it, engine.cc runs batches with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/runtime/cache/kv_cache.h"
#include "lib/runtime/cache/prefix_cache.h"
#include "lib/runtime/cpu/executor.h"
#include "lib/runtime/cpu/warm_up.h"
#include "lib/runtime/engine/arena.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/engine/final_hidden.h"
#include "lib/runtime/engine/fit.h"
#include "lib/runtime/gpu/gpu_runner.h"
#include "lib/support/thread_pool.h"

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

}  // namespace ktx::runtime
