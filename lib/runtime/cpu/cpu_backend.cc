#include "lib/runtime/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "lib/plan/state_layout.h"
#include "lib/runtime/cpu/bind.h"
#include "lib/runtime/cpu/executor.h"
#include "lib/runtime/cpu/repeated_steps.h"
#include "lib/runtime/experts/expert_cache.h"
#include "lib/runtime/experts/expert_prediction.h"

namespace ktx::runtime {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const BackendSetup& setup, const HostArena& arena)
      : plan_(setup.plan),
        kv_(setup.kv),
        arena_(arena),
        experts_(setup.experts),
        threads_(setup.pool.threads()),
        slots_(plan::slots_on(setup.plan, "cpu")),
        state_parts_(plan::state_parts(setup.plan, "cpu")) {}

  Status bind_parts(const BackendSetup& setup, const BoundParts& parts) {
    partials_ = KTX_TRY(make_partials(*setup.plan.program, setup.shape.ctx));
    parts_ = parts.parts;
    on_result_ = setup.on_result;
    if (setup.on_repeat) repeats_.emplace(setup, arena_, partials_);
    executors_.resize(parts.parts.size());
    BindOptions own{.arena = arena_.memory.data(),
                    .buffer_offsets = arena_.layout.offsets,
                    .isa = setup.isa,
                    .precision = setup.precision,
                    .threads = setup.pool.threads(),
                    .shares = setup.pool.shares(),
                    .partials = &partials_,
                    .expert_counts = setup.expert_counts,
                    .experts = setup.experts,
                    .guests = setup.guests,
                    .cpu_op = setup.cpu_op};
    if (experts_) {
      prediction_ = KTX_TRY(ExpertPrediction::create(setup.plan, setup.kv, arena_, own, *experts_));
    }
    own.lora = setup.lora;  // (what predicts experts does without)
    for (size_t p = 0; p < parts.parts.size(); ++p) {
      const Part& part = parts.parts[p];
      if (part.kind != Part::Kind::Cpu) continue;
      own.first_step = part.first_step;
      own.step_count = part.step_count;
      BoundPlan bound = KTX_TRY(bind(setup.plan, setup.kv, own));
      executors_[p] = KTX_TRY(Executor::create(std::move(bound), setup.pool));
      if (!setup.on_result) continue;
      executors_[p]->watch_steps(
          [this, told = setup.on_result](uint32_t step) { tell(step, told); });
    }
    return {};
  }

  Result<bool> run(size_t part, const Batch& batch, const ForwardWatch* watch) override {
    batch_ = &batch;
    if (repeats_) {
      KTX_TRY(repeats_->run(parts_[part], batch, [this](uint32_t step) {
        if (on_result_) tell(step, on_result_);
      }));
      return true;
    }
    const Status done = executors_[part]->run(batch, watch);
    if (experts_ && experts_->failed()) return experts_->take_failure();
    KTX_TRY(done);
    return !executors_[part]->stopped();
  }

  Status read(std::span<const ValueRead> reads) override {
    for (const ValueRead& read : reads) {
      const program::Value& value = plan_.program->values[read.value];
      const std::byte* const from = arena_.place(value) + read.row * program::row_bytes(value);
      std::memcpy(read.out.data(), from, read.out.size_bytes());
    }
    return {};
  }

  // In the mapping, which threads of the CPU and streams to GPUs read, and in slots of experts.
  bool has_weight(uint32_t blob) const override {
    return plan_.program->blobs[blob].device == "cpu";
  }
  Status read_weight(uint32_t blob, uint64_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), plan_.blob_bytes(blob).data() + offset, out.size());
    if (experts_) experts_->copy_slots(static_cast<program::BlobId>(blob), offset, out);
    return {};
  }

  Status copy_states(StateSlot slot, bool write, std::span<std::byte> all) override {
    std::byte* const own = kv_.states().bytes(slot).data();
    for (const plan::StatePart& part : state_parts_) {
      std::byte* const here = own + part.here;
      std::byte* const there = all.data() + part.among_all;
      std::memcpy(write ? here : there, write ? there : here, part.bytes);
    }
    return {};
  }

  Status map_block(const KvBlock& block, bool, std::span<std::byte*> slots) override {
    for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
      std::byte* const begin = block[kv_.kind_of(slot)];
      if (slots_[slot] && begin) slots[slot] = begin + kv_.slot_offset(slot);
    }
    return {};
  }

  int64_t weight_bytes() const override {
    int64_t sum = 0;
    for (const auto& executor : executors_) sum += executor ? executor->weight_bytes() : 0;
    return sum;
  }
  void enable_times(bool on) override {
    for (auto& executor : executors_) {
      if (executor) executor->enable_times(on);
    }
  }
  void set_trace(ForwardTrace* trace) override {
    std::vector<TraceLane*> lanes;
    for (int i = 0; trace && i < threads_; ++i) {
      lanes.push_back(trace->lane("cpu", "thread " + std::to_string(i)));
    }
    for (auto& executor : executors_) {
      if (executor) executor->set_trace(trace, lanes);
    }
  }
  void add_times(std::vector<StepTotals>& out) const override {
    for (const auto& executor : executors_) {
      if (executor) out.insert(out.end(), executor->times().begin(), executor->times().end());
    }
  }

 private:
  // The F32 results of a step, as it left them.
  void tell(uint32_t number, const std::function<void(const StepResult&)>& on_result) const {
    const program::Step& step = plan_.program->steps[number];
    for (const program::View& operand : step.outputs) {
      if (operand.value == program::kAbsent) continue;
      const program::Value& value = plan_.program->values[operand.value];
      if (value.type != ValueType::F32) continue;
      const int64_t stride = program::row_bytes(value) / static_cast<int64_t>(sizeof(float));
      const int64_t rows = batch_->rows(value.rows);
      const auto* const data = reinterpret_cast<const float*>(arena_.place(value));
      on_result({value.name,
                 step.layer,
                 {data, static_cast<size_t>(rows * stride)},
                 stride,
                 operand.offset,
                 operand.width});
    }
  }

  const plan::PlanView& plan_;
  const KvPools& kv_;
  const HostArena& arena_;
  ExpertCache* const experts_;    // null: none
  const Batch* batch_ = nullptr;  // of the pass at hand
  int threads_;
  std::vector<bool> slots_;  // whether it is the CPU's
  std::vector<plan::StatePart> state_parts_;
  AttentionPartials partials_;
  std::vector<Part> parts_;
  std::function<void(const StepResult&)> on_result_;
  std::unique_ptr<ExpertPrediction> prediction_;
  std::optional<RepeatedSteps> repeats_;            // where steps run twice
  std::vector<std::optional<Executor>> executors_;  // by part
};

}  // namespace

Result<std::unique_ptr<Backend>> create_cpu_backend(const BackendSetup& setup,
                                                    const BoundParts& parts,
                                                    const HostArena& arena) {
  auto backend = std::make_unique<CpuBackend>(setup, arena);
  KTX_TRY(backend->bind_parts(setup, parts));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace ktx::runtime
