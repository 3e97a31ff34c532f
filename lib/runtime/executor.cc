#include "lib/runtime/executor.h"

#include <fmt/format.h>

namespace ktx::runtime {

Result<Executor> Executor::create(BoundPlan steps, ThreadPool& pool) {
  if (steps.steps.size() > static_cast<size_t>(ThreadPool::kMaxStages)) {
    return Error{fmt::format("the plan has {} steps, more than the {} allowed", steps.steps.size(),
                             ThreadPool::kMaxStages)};
  }
  Executor executor;
  executor.plan_ = std::move(steps);
  executor.pool_ = &pool;
  // A cache line between the threads' parts, and one more against prefetchers.
  executor.scratch_stride_ = (executor.plan_.scratch_bytes + 63) / 64 * 64 + 128;
  executor.scratch_ =
      KTX_TRY(Arena::allocate(executor.scratch_stride_ * pool.threads(), "scratch memory"));
  return executor;
}

Status Executor::run(const Batch& batch) {
  batch_ = &batch;
  fault_ = nullptr;
  timed_stage_ = -1;
  pool_->run(*this, static_cast<int>(plan_.steps.size()));
  note_time(-1);
  if (!fault_) return {};
  return Error{fmt::format("step {} met damaged data: {}; the plan or the memory is broken",
                           plan_.steps[fault_step_].record, fault_)};
}

int64_t Executor::begin_stage(int stage) {
  if (fault_) return 0;
  note_time(stage);
  StepWork work = plan_.steps[stage].run->begin(*batch_);
  if (work.items > ThreadPool::kMaxItems) work.fault = "a step falls into too many parts";
  weight_bytes_ += work.weight_bytes;
  if (work.fault) {
    fault_ = work.fault;
    fault_step_ = static_cast<uint32_t>(stage);
    return 0;
  }
  return work.items;
}

void Executor::run_item(int stage, int64_t item, int thread) {
  plan_.steps[stage].run->run(item, scratch_.data() + thread * scratch_stride_);
}

void Executor::enable_times(bool on) {
  times_.assign(on ? plan_.steps.size() : 0, Time{});
}

// Ends the time of the step before and starts that of `stage`.
void Executor::note_time(int stage) {
  if (times_.empty()) return;
  if (timed_stage_ >= 0) {
    Time& time = times_[timed_stage_];
    time.seconds += timer_.seconds();
    time.runs += 1;
    time.tokens += batch_->tokens;
  }
  timer_ = Timer();
  timed_stage_ = stage;
}

}  // namespace ktx::runtime
