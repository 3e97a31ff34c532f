// Runs a plan: its parts one after the other, each on its backend (backend.h). A plan for the CPU
// is one part.
//
//   auto runner = KTX_TRY(PlanRunner::create(setup));
//   if (KTX_TRY(runner->run(batch))) use(runner->logits());
//
// Creation allocates all memory and binds all steps. A run does not allocate, and waits only where
// the CPU needs a GPU's result: before its own parts, and at the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"

namespace ktx::runtime {

class HostBoundaries;

// A pass on its way through the parts.
struct ForwardWalk {
  const Batch* batch = nullptr;
  const ForwardWatch* watch = nullptr;  // may be null
  int64_t number = 0;                   // among the passes of the hosts
  size_t part = 0;                      // the next one
  Result<bool> goes_on = true;          // false: it was stopped
  int64_t cpu_pairs = 0;                // ExpertCounts::cpu_pairs() so far
  int64_t joint_pairs = 0;              // of these, in parts that the CPU shares with a GPU
  std::vector<bool> taken = {};         // by part of the CPU: a GPU computes it in this pass
};

class PlanRunner {
 public:
  ~PlanRunner();
  static Result<std::unique_ptr<PlanRunner>> create(const BackendSetup& setup);

  // As Backend::begin to finish. False: `watch` (may be null) ended the pass, between two parts or
  // within one of the CPU; what was queued on a GPU has been awaited.
  Result<bool> run(const Batch& batch, const ForwardWatch* watch = nullptr);

  // The same in two calls, where most_forwards() is more than one: so many may have begun. begin()
  // computes what needs no other host's results, and finish(), of the oldest, the rest; it has the
  // failures of both. Batch and watch stay until then.
  int64_t most_forwards() const { return most_forwards_; }
  void begin(ForwardWalk& pass, const Batch& batch, const ForwardWatch* watch);
  Result<bool> finish(ForwardWalk& pass);

  // In host memory. Rows of which only the best are wanted may be absent: keeps_logits().
  const float* logits() const;
  int64_t logits_stride() const;  // in floats
  bool keeps_logits() const;
  BestLogits best(int64_t row, int32_t count) const;
  Status fetch_logits(int64_t row);

  Status read(std::span<const ValueRead> reads);
  // Reads each weight of this machine back from where kernels read it and calls `differs` with
  // those whose hash is not the plan's. True in `stop` (null: nothing) ends it.
  Status check_weights(ThreadPool& pool, const std::atomic<bool>* stop,
                       const std::function<void(uint32_t blob)>& differs);
  // The rows that the first `tokens` tokens of the tables fill, in a fixed order: block, slot,
  // head; keys, then values; not those of blocks that windows have left behind. With `write` the
  // devices get what `call` leaves in the rows. Stops at the first failure.
  Status visit_kv(const KvTables& tables, int64_t tokens, bool write, const VisitRows& call);
  // This host's slots of a block, in the order of their numbers, in host memory; with `write` the
  // cache gets what `call` leaves there.
  Status visit_block(const KvBlock& block, bool write,
                     const std::function<Status(std::span<std::byte>)>& call);
  // The states of a slot, of all devices, in the order of their numbers; none where `all` is empty.
  Status copy_states(StateSlot slot, bool write, std::span<std::byte> all);

  int64_t weight_bytes() const;  // read by run() so far
  const ExpertUse& expert_use() const { return counts_.use(); }
  // With EngineOptions::count_experts: the activations of all steps so far.
  Result<plan::ExpertProfile> expert_profile();
  // Adds what was counted by expert, here and on all devices.
  Status add_expert_counts(std::span<uint64_t> counts);
  size_t expert_counters() const { return counts_.size(); }
  // Times by step since they were switched on; off by default.
  void enable_times(bool on);
  std::vector<StepTotals> times() const;
  std::vector<StepTime> step_times() const;  // the same, with their names
  // Notes what runs when in the passes that follow (forward_trace.h), until null; off by default.
  void set_trace(ForwardTrace* trace);
  std::vector<std::string> notes() const;
  std::vector<GpuUse> gpus() const;
  // The mean over `steps` (records of the plan, all on one GPU) in turn inside a graph, at the
  // shape of the last pass. Overwrites values: the next pass must not rely on them.
  Result<KernelTime> time_steps(std::span<const uint32_t> steps);
  // The steps that `step` of a GPU stands for at the shape of the last pass: itself, all of a
  // fused op that runs at its place, or none when another stands for it. Itself on a CPU.
  std::vector<uint32_t> steps_of_launch(uint32_t step) const;
  HostBoundaries* boundaries() const { return hosts_.get(); }  // null: the plan is for one machine

 private:
  explicit PlanRunner(const BackendSetup& setup);
  Result<bool> walk(ForwardWalk& pass, bool until_wait);
  Result<bool> run_parts(ForwardWalk& pass, const ForwardWatch* watch, bool until_wait);
  Result<bool> end(ForwardWalk& pass);
  Status finish();
  void trace_forward(double begun, const char* what, int64_t tokens);
  // work(), with a span of the host's lane where there is a trace.
  template <class Work>
  auto traced(TraceSpan span, const Work& work) -> decltype(work());
  Backend& backend_of(const Part& part) const;
  Backend& logits_backend() const;
  // The part that has the step; the number of parts where none has (the logits' transfer).
  size_t part_of(uint32_t step) const;

  const plan::PlanView& plan_;
  HostGroup* const group_;  // null: the plan is for one machine
  const KvPools& kv_;
  BoundParts parts_;
  ExpertCounts counts_;
  HostArena host_;
  std::unique_ptr<Backend> cpu_;
  std::unique_ptr<Backend> gpus_;          // null: none in this plan
  std::unique_ptr<HostBoundaries> hosts_;  // null: the plan is for one machine
  std::vector<Backend*> backends_;         // those
  Batch joint_;  // the pass as the CPU has it in parts that it shares with a GPU
  int64_t most_forwards_ = 1;
  ForwardTrace* trace_ = nullptr;
  TraceLane* passes_ = nullptr;  // of the trace
  TraceLane* host_lane_ = nullptr;
};

}  // namespace ktx::runtime
