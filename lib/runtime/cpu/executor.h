// The step loop: every thread of the pool walks through the stages of the plan
// (lib/ops/step_stages.h), item by item. No allocation, no lookup, no branch on
// the model.
//
//   stage 7:  q (12 items) | k (3 items) | v (3 items)     one counter of 18, one barrier
//
// With several NUMA nodes each node has a share of every step's items, always the same part of
// its rows, whose weights are in the node's memory (node_weights.h):
//
//   node 0:  q 0..5, k 0, v 0       node 1:  q 6..11, k 1..2, v 1..2
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lib/runtime/cpu/bind.h"
#include "lib/runtime/engine/arena.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/forward_trace.h"
#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/step_stats.h"
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
  // then undefined, the cache has undefined entries for the tokens of this batch. So they
  // are when `watch` ended the run.
  Status run(const Batch& batch, const ForwardWatch* watch = nullptr);
  bool stopped() const { return stopped_; }  // whether the last run was ended

  // Bytes of weights that run() has read so far.
  int64_t weight_bytes() const { return weight_bytes_; }

  void enable_times(bool on);
  // `lanes`: one for each thread; null: none, else both live until the next call.
  void set_trace(const ForwardTrace* trace, std::span<TraceLane* const> lanes);
  // Calls `done` with the step's record behind each step, whose outputs are as it left them; on any
  // thread, one at a time. Empty: none.
  void watch_steps(std::function<void(uint32_t record)> done) { done_ = std::move(done); }
  // One of each step; empty when off. A stage's time is divided among its steps by the time
  // that all threads spent in each.
  const std::vector<StepTotals>& times() const { return times_; }

 private:
  // Steps of the stage at hand whose items lie side by side: one, or several that
  // take a run of rows, or of columns, through all of them.
  struct Part {
    const std::vector<int32_t>* steps = nullptr;
    int64_t items = 0;
    RowSplit rows;  // of several row-wise steps
    bool by_column = false;
  };

  Executor() = default;
  int64_t begin_stage(int stage, int thread) override;
  int64_t end_of_share(int64_t items, int share, int shares) override;
  void run_item(int stage, int64_t item, int thread) override;
  std::pair<const Part*, int64_t> find_item(int64_t item) const;
  StepWork begin_step(int32_t step);
  Part begin_part(const std::vector<int32_t>& steps);
  template <class Work>
  void timed(int32_t step, int thread, const Work& work);
  void add_span(int32_t step, int thread, double begin, double end);
  void end_stage(int next);
  void note_time(int stage);
  bool stopping();
  std::byte* scratch(int thread) { return scratch_.data() + thread * scratch_stride_; }

  BoundPlan plan_;
  ThreadPool* pool_ = nullptr;
  Arena scratch_;
  int64_t scratch_stride_ = 0;
  const Batch* batch_ = nullptr;
  const ForwardWatch* watch_ = nullptr;
  bool stopped_ = false;  // through std::atomic_ref while a run goes on
  // Written by the one thread that opens a stage.
  std::vector<Part> parts_;
  std::vector<int64_t> share_ends_;  // items of the stage up to each share's last
  const char* fault_ = nullptr;
  uint32_t fault_step_ = 0;
  int64_t weight_bytes_ = 0;
  std::vector<StepTotals> times_;
  std::vector<std::vector<double>> busy_;  // seconds by thread and step
  Timer timer_;
  int begun_stage_ = -1;
  std::function<void(uint32_t)> done_;
  const ForwardTrace* trace_ = nullptr;
  std::vector<TraceLane*> lanes_;  // by thread
};

}  // namespace ktx::runtime
