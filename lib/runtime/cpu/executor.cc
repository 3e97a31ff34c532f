#include "lib/runtime/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace ktx::runtime {

Result<Executor> Executor::create(BoundPlan steps, ThreadPool& pool) {
  if (steps.stages.size() > static_cast<size_t>(ThreadPool::kMaxStages)) {
    return Error{fmt::format("the plan has {} stages, more than the {} allowed",
                             steps.stages.size(), ThreadPool::kMaxStages)};
  }
  Executor executor;
  executor.plan_ = std::move(steps);
  executor.pool_ = &pool;
  size_t most = 0;
  for (const Stage& stage : executor.plan_.stages) most = std::max(most, stage.parts.size());
  executor.parts_.reserve(most);
  executor.share_ends_.reserve(static_cast<size_t>(pool.shares()));
  // A cache line between the threads' parts, and one more against prefetchers.
  executor.scratch_stride_ = (executor.plan_.scratch_bytes + 63) / 64 * 64 + 128;
  executor.scratch_ =
      KTX_TRY(Arena::allocate(executor.scratch_stride_ * pool.threads(), "scratch memory"));
  return executor;
}

Status Executor::run(const Batch& batch, const ForwardWatch* watch) {
  batch_ = &batch;
  watch_ = watch;
  stopped_ = false;
  fault_ = nullptr;
  begun_stage_ = -1;
  pool_->run(*this, static_cast<int>(plan_.stages.size()));
  end_stage(-1);
  if (!fault_) return {};
  return Error{fmt::format("step {} found damaged data: {}; the plan or the memory is broken",
                           plan_.steps[fault_step_].number, fault_)};
}

// Once true it stays so for this run: an item was left out.
bool Executor::stopping() {
  if (!watch_) return false;
  const std::atomic_ref stopped(stopped_);
  if (watch_->stopped()) stopped.store(true, std::memory_order_relaxed);
  return stopped.load(std::memory_order_relaxed);
}

StepWork Executor::begin_step(int32_t step) {
  StepWork work = plan_.steps[step].run->begin(*batch_);
  if (work.items > ThreadPool::kMaxItems) work.fault = "a step falls into too many parts";
  weight_bytes_ += work.weight_bytes;
  if (!times_.empty()) times_[step].weight_bytes += work.weight_bytes;
  if (work.fault && !fault_) {
    fault_ = work.fault;
    fault_step_ = static_cast<uint32_t>(step);
  }
  return work;
}

Executor::Part Executor::begin_part(const std::vector<int32_t>& steps) {
  StepWork work = begin_step(steps[0]);
  if (!is_row_wise(plan_.steps[steps[0]].op)) {
    for (size_t i = 1; i < steps.size(); ++i) begin_step(steps[i]);
    return {&steps, work.items, {}, true};
  }
  for (size_t i = 1; i < steps.size(); ++i) {
    const StepWork next = begin_step(steps[i]);
    KTX_ASSERT(fault_ || next.rows.rows == work.rows.rows);
    work.rows.grain = std::min(work.rows.grain, next.rows.grain);
  }
  return {&steps, steps.size() > 1 ? work.rows.items() : work.items, work.rows};
}

int64_t Executor::begin_stage(int stage, int thread) {
  if (fault_ || stopping()) return 0;
  if (watch_ && watch_->progress) {
    watch_->progress(static_cast<double>(stage) / static_cast<double>(plan_.stages.size()));
  }
  end_stage(stage);
  for (int32_t step : plan_.stages[stage].prelude) {
    const StepWork work = begin_step(step);
    if (fault_) return 0;
    timed(step, thread, [&] {
      for (int64_t i = 0; i < work.items; ++i) plan_.steps[step].run->run(i, scratch(thread));
    });
  }
  parts_.clear();
  int64_t items = 0;
  for (const std::vector<int32_t>& steps : plan_.stages[stage].parts) {
    parts_.push_back(begin_part(steps));
    items += parts_.back().items;
  }
  if (items > ThreadPool::kMaxItems && !fault_) {
    fault_ = "a stage falls into too many parts";
    fault_step_ = static_cast<uint32_t>(plan_.stages[stage].parts[0][0]);
  }
  return fault_ ? 0 : items;
}

namespace {
// The items of a part that this share and the shares before it have.
int64_t part_end(int64_t items, int64_t share, int64_t shares) {
  return items * (share + 1) / shares;
}
}  // namespace

int64_t Executor::end_of_share(int64_t, int share, int shares) {
  share_ends_.resize(static_cast<size_t>(shares));
  int64_t end = 0;
  for (const Part& part : parts_) end += part_end(part.items, share, shares);
  return share_ends_[static_cast<size_t>(share)] = end;
}

// Items are numbered by share, then by part.
std::pair<const Executor::Part*, int64_t> Executor::find_item(int64_t item) const {
  const auto shares = static_cast<int64_t>(share_ends_.size());
  int64_t share = 0;
  while (item >= share_ends_[static_cast<size_t>(share)]) ++share;
  if (share > 0) item -= share_ends_[static_cast<size_t>(share - 1)];
  for (const Part* part = parts_.data();; ++part) {
    const int64_t begin = part_end(part->items, share - 1, shares);
    const int64_t count = part_end(part->items, share, shares) - begin;
    if (item < count) return {part, begin + item};
    item -= count;
  }
}

void Executor::run_item(int, int64_t place, int thread) {
  if (stopping()) return;
  const auto [part, item] = find_item(place);
  const std::vector<int32_t>& steps = *part->steps;
  if (steps.size() == 1) {
    timed(steps[0], thread,
          [&, item = item] { plan_.steps[steps[0]].run->run(item, scratch(thread)); });
    return;
  }
  if (part->by_column) {
    timed(steps[0], thread,
          [&, item = item] { plan_.steps[steps[0]].run->run(item, scratch(thread)); });
    const OutputRegion region = plan_.steps[steps[0]].run->done(item);
    if (region.col_begin == region.col_end) return;
    for (size_t i = 1; i < steps.size(); ++i) {
      timed(steps[i], thread,
            [&] { plan_.steps[steps[i]].run->run_region(region, scratch(thread)); });
    }
    return;
  }
  for (int32_t step : steps) {
    timed(step, thread, [&, part = part, item = item] {
      plan_.steps[step].run->run_rows(part->rows.begin(item), part->rows.end(item),
                                      scratch(thread));
    });
  }
}

void Executor::enable_times(bool on) {
  times_.assign(on ? plan_.steps.size() : 0, StepTotals{});
  for (size_t i = 0; i < times_.size(); ++i) times_[i].step = plan_.steps[i].number;
  busy_.assign(on ? pool_->threads() : 0, std::vector<double>(plan_.steps.size()));
}

template <class Work>
void Executor::timed(int32_t step, int thread, const Work& work) {
  if (busy_.empty() && !trace_) return work();
  const double begin = trace_ ? trace_->now() : 0;
  const Timer timer;
  work();
  const double seconds = timer.seconds();
  if (!busy_.empty()) busy_[thread][step] += seconds;
  if (trace_) add_span(step, thread, begin, begin + seconds);
}

// Items of a step that follow one another on a thread are one span.
void Executor::add_span(int32_t step, int thread, double begin, double end) {
  constexpr double kGap = 20e-6;
  std::vector<TraceSpan>& spans = lanes_[thread]->spans;
  const uint32_t record = plan_.steps[step].number;
  if (!spans.empty() && spans.back().step == record && begin - spans.back().end < kGap) {
    spans.back().end = end;
    return;
  }
  spans.push_back({.begin = begin, .end = end, .step = record, .steps = 1});
}

void Executor::set_trace(const ForwardTrace* trace, std::span<TraceLane* const> lanes) {
  trace_ = trace;
  lanes_.assign(lanes.begin(), lanes.end());
}

namespace {

// Calls use(step) for each step of the stage.
template <class Use>
void for_each_step(const Stage& stage, const Use& use) {
  for (int32_t step : stage.prelude) use(step);
  for (const auto& part : stage.parts) {
    for (int32_t step : part) use(step);
  }
}

}  // namespace

// Ends the stage that was begun last; `next` begins.
void Executor::end_stage(int next) {
  if (times_.empty() && !done_) return;
  if (begun_stage_ >= 0) {
    if (!times_.empty()) note_time(begun_stage_);
    if (done_ && !fault_ && !stopped_) {
      for_each_step(plan_.stages[begun_stage_], [&](int32_t step) {
        if (!plan_.steps[step].ahead) done_(plan_.steps[step].number);
      });
    }
  }
  timer_ = Timer();
  begun_stage_ = next;
}

void Executor::note_time(int stage) {
  const double seconds = timer_.seconds();
  const auto busy_of = [&](int32_t step) {
    double busy = 0;
    for (const auto& thread : busy_) busy += thread[step];
    return busy;
  };
  double all = 0;
  for_each_step(plan_.stages[stage], [&](int32_t step) { all += busy_of(step); });
  for_each_step(plan_.stages[stage], [&](int32_t step) {
    StepTotals& time = times_[step];
    time.seconds += all > 0 ? seconds * busy_of(step) / all : 0;
    time.busy_seconds += busy_of(step);
    time.runs += 1;
    time.tokens += batch_->tokens;
    for (auto& thread : busy_) thread[step] = 0;
  });
}

}  // namespace ktx::runtime
