// The step loop: every thread of the pool walks through the steps of the plan, item
// by item. No allocation, no lookup, no branch on the model.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/runtime/arena.h"
#include "lib/runtime/batch.h"
#include "lib/runtime/bind.h"
#include "lib/support/result.h"
#include "lib/support/thread_pool.h"
#include "lib/support/timer.h"

namespace ktx::runtime {

class Executor final : private ThreadPool::Job {
 public:
  // `pool` must outlive the executor.
  static Result<Executor> create(BoundPlan steps, ThreadPool& pool);
  Executor(Executor&&) = default;
  Executor& operator=(Executor&&) = default;

  // Runs all steps. Fails when a step finds its inputs damaged; the activations are
  // then undefined, the cache has undefined entries for the tokens of this batch.
  Status run(const Batch& batch);

  // Bytes of weights that run() has read so far.
  int64_t weight_bytes() const { return weight_bytes_; }

  const std::vector<BoundStep>& steps() const { return plan_.steps; }
  void enable_times(bool on);
  struct Time {
    double seconds = 0;
    int64_t runs = 0;
    int64_t tokens = 0;
  };
  const std::vector<Time>& times() const { return times_; }  // by step; empty when off

 private:
  Executor() = default;
  int64_t begin_stage(int stage) override;
  void run_item(int stage, int64_t item, int thread) override;
  void note_time(int stage);

  BoundPlan plan_;
  ThreadPool* pool_ = nullptr;
  Arena scratch_;
  int64_t scratch_stride_ = 0;
  const Batch* batch_ = nullptr;
  // Written by the one thread that opens a stage.
  const char* fault_ = nullptr;
  uint32_t fault_step_ = 0;
  int64_t weight_bytes_ = 0;
  std::vector<Time> times_;
  Timer timer_;
  int timed_stage_ = -1;
};

}  // namespace ktx::runtime
