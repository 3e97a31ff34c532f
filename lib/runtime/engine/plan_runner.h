// Runs a plan: its parts one after the other, each on its backend (backend.h). A plan for the CPU
// is one part.
//
//   auto runner = KTX_TRY(PlanRunner::create(setup));
//   if (KTX_TRY(runner->run(batch))) use(runner->logits());
//
// Creation allocates all memory and binds all steps. A run does not allocate, and waits only where
// the CPU needs a GPU's result: before its own parts, and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"

namespace ktx::runtime {

class PlanRunner {
 public:
  static Result<std::unique_ptr<PlanRunner>> create(const BackendSetup& setup);

  // As Backend::begin to finish. False: `watch` (may be null) ended the pass, between two parts or
  // within one of the CPU; what was queued on a GPU has been awaited.
  Result<bool> run(const Batch& batch, const PassWatch* watch = nullptr);

  // In host memory. Rows of which only the best are wanted may be absent: keeps_logits().
  const float* logits() const;
  int64_t logits_stride() const;  // in floats
  bool keeps_logits() const;
  BestLogits best(int64_t row, int32_t count) const;
  Status fetch_logits(int64_t row);

  Status read(std::string_view device, uint32_t value, int64_t row, std::span<float> out);
  // The rows that the first `tokens` tokens of the tables fill, in a fixed order: block, slot,
  // head; keys, then values; not those of blocks that windows have left behind. With `write` the
  // devices get what `call` leaves in the rows. Stops at the first failure.
  Status visit_kv(const KvTables& tables, int64_t tokens, bool write, const VisitRows& call);
  // The states of a slot, of all devices, in the order of their numbers.
  Status copy_states(StateSlot slot, bool write, std::span<std::byte> all);

  int64_t weight_bytes() const;  // read by run() so far
  const ExpertUse& expert_use() const { return counts_.use(); }
  Result<plan::ExpertProfile> expert_profile();
  // Adds what was counted by expert, here and on all devices.
  Status add_expert_counts(std::span<uint64_t> counts);
  size_t expert_counters() const { return counts_.size(); }
  void enable_times(bool on);
  std::vector<StepTotals> times() const;  // by step
  void set_trace(PassTrace* trace);       // null: none
  std::vector<std::string> notes() const;
  std::vector<GpuUse> gpus() const;
  Result<KernelTime> time_steps(std::span<const uint32_t> steps);
  std::vector<uint32_t> steps_of_launch(uint32_t step) const;

 private:
  explicit PlanRunner(const BackendSetup& setup)
      : plan_(setup.plan),
        group_(setup.hosts),
        kv_(setup.kv),
        parts_(bind_parts(setup.plan, setup.launches.parts)),
        counts_(setup.plan, parts_, setup.count_experts) {}
  Result<bool> run_parts(const Batch& batch, const PassWatch* watch);
  Status finish();
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
  std::unique_ptr<Backend> gpus_;   // null: none in this plan
  std::unique_ptr<Backend> hosts_;  // null: the plan is for one machine
  std::vector<Backend*> backends_;  // those
  std::vector<bool> taken_;         // by part of the CPU: a GPU computes it in this pass
  Batch joint_;                     // the pass as the CPU has it in parts that it shares with a GPU
  PassTrace* trace_ = nullptr;
  TraceLane* passes_ = nullptr;  // of the trace
  TraceLane* host_lane_ = nullptr;
};

}  // namespace ktx::runtime
