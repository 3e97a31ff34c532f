// Runs a plan with GPUs: queues the GPUs' parts and runs the CPU's parts between them.
//
//   auto runner = KTX_TRY(GpuRunner::create(plan, kv, pool, setup));
//   KTX_TRY(runner->run(batch));     // logits are in host memory then
//
// Creation allocates all memory, uploads the weights and captures the steps of one token per
// sequence as graphs, by bucket (gpu_buckets.h). A run does not allocate, and waits only where
// the CPU needs a GPU's result: before its own parts, and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/cache/kv_cache.h"
#include "lib/runtime/cpu/executor.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/pass_watch.h"
#include "lib/runtime/engine/step_stats.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/gpu/gpu_setup.h"
#include "lib/runtime/sampling/best_logits.h"
#include "lib/support/result.h"
#include "lib/support/thread_pool.h"

namespace ktx::runtime {

struct GpuState;

class GpuRunner {
 public:
  // `kv` has its slots of the CPU in memory and numbers the blocks of all devices.
  static Result<std::unique_ptr<GpuRunner>> create(const plan::PlanView& plan, KvCache& kv,
                                                   ThreadPool& pool, const GpuSetup& setup);
  ~GpuRunner();

  // Fails on damaged data and when a GPU fails (lost, out of memory); the message says
  // which and what to do. `watch` (may be null) can end the run between two parts and
  // within those of the CPU; what was queued is awaited then.
  Status run(const Batch& batch, const PassWatch* watch = nullptr);
  bool stopped() const;  // whether the last run was ended

  const float* logits() const;
  int64_t logits_stride() const;  // in floats
  // Whether a GPU computes the logits, and keeps those of which only the best are wanted.
  bool keeps_logits() const;
  BestLogits best(int64_t row, int32_t count) const;  // of the last run
  // All logits of a row that has only its best here, of the last run.
  Status fetch_logits(int64_t row);
  int64_t weight_bytes() const;  // read by run() so far
  // The first floats of a row of `value` as the last run left it on `device` ("cpu",
  // "cuda:0").
  Status read(std::string_view device, uint32_t value, int64_t row, std::span<float> out);
  // As KvCache::visit, over the slots of all devices. With `write` the GPUs get what
  // `call` leaves in the rows.
  Status visit_kv(std::span<std::byte* const> table, int64_t tokens, bool write,
                  const VisitRows& call);
  // What happened at the start: "cuda:0 NVIDIA H200: 16.9 GiB uploaded in 0.4 s ...".
  const std::vector<std::string>& notes() const;
  std::vector<GpuFacts> gpus() const;

  // Times per step of the plan; steps then run one by one, each awaited.
  void enable_times(bool on);
  const std::vector<Executor::Time>& times() const;  // by record; empty when off

  // The mean over `steps` (records of the plan, all on one GPU) in turn inside a graph, at
  // the shape of the last run. Overwrites values: the next run must not rely on them.
  Result<KernelTime> time_steps(std::span<const uint32_t> steps);
  // The steps that `step` of a GPU stands for at the shape of the last run: itself, all of a
  // fused op that runs at its place, or none when another stands for it.
  std::vector<uint32_t> steps_of_launch(uint32_t step) const;

 private:
  explicit GpuRunner(std::unique_ptr<GpuState> state);
  std::unique_ptr<GpuState> state_;
};

}  // namespace ktx::runtime
