#include "lib/runtime/gpu/gpu_runner.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lib/runtime/gpu/gpu_queue.h"
#include "lib/runtime/gpu/gpu_start.h"
#include "lib/runtime/gpu/gpu_state.h"
#include "lib/runtime/gpu/kernel_times.h"
#include "lib/runtime/gpu/step_bytes.h"
#include "lib/runtime/gpu/watched_steps.h"

namespace ktx::runtime {
namespace {

Status send_inputs(GpuState& s, const Batch& batch, const GpuShape& shape) {
  const int64_t sequences = batch.sequence[batch.tokens - 1] + 1;
  const int64_t bytes = s.batch_layout.fill(s.host_batch.data(), batch, sequences, shape, s.kv);
  for (GpuDevice& device : s.devices) {
    KTX_TRY(
        device.gpu->upload(device.batch.data(), s.host_batch.data(), static_cast<uint64_t>(bytes)));
  }
  return {};
}

Status run_cpu_part(GpuState& s, size_t p, const Batch& batch, const PassWatch* watch) {
  for (int wait : s.parts.parts[p].waits_for) {
    GpuDevice& device = s.devices[s.parts.parts[wait].device];
    KTX_TRY(device.named(device.gpu->wait(s.marks[wait])));
  }
  const int64_t before = s.executors[p]->weight_bytes();
  // How far one part is says little: run_all counts them.
  const PassWatch stop_only{watch ? watch->stop : nullptr, {}};
  KTX_TRY(s.executors[p]->run(batch, &stop_only));
  s.stopped = s.executors[p]->stopped();
  s.weight_bytes += s.executors[p]->weight_bytes() - before;
  return {};
}

Status run_gpu_part(GpuState& s, size_t p, const Batch& batch, const GpuShape& shape, int bucket) {
  const Part& part = s.parts.parts[p];
  GpuDevice& device = s.devices[part.device];
  if (s.steps_are_watched()) {
    KTX_TRY(run_watched(s, part, batch, shape));
  } else if (bucket >= 0 && s.graphs[bucket].size() > p && s.graphs[bucket][p]) {
    KTX_TRY(device.named(device.gpu->launch(*s.graphs[bucket][p])));
  } else {
    KTX_TRY(queue_part(s, part, shape));
  }
  return part.awaited ? device.named(device.gpu->set(s.marks[p])) : Status{};
}

Status run_all(GpuState& s, const Batch& batch, const GpuShape& shape, int bucket,
               const PassWatch* watch) {
  KTX_TRY(send_inputs(s, batch, shape));
  const size_t parts = s.parts.parts.size();
  for (size_t p = 0; p < parts && !s.stopped; ++p) {
    if (watch && watch->stopped()) {
      s.stopped = true;
      break;
    }
    if (watch && watch->progress) {
      watch->progress(static_cast<double>(p) / static_cast<double>(parts));
    }
    KTX_TRY(s.parts.parts[p].kind == Part::Kind::Cpu ? run_cpu_part(s, p, batch, watch)
                                                     : run_gpu_part(s, p, batch, shape, bucket));
  }
  if (s.logits && !s.stopped) {
    GpuDevice& device = s.devices[s.parts.logits_device];
    KTX_TRY(device.named(s.logits->queue(batch, device.workspace.data())));
  }
  for (GpuDevice& device : s.devices) KTX_TRY(device.named(device.gpu->finish()));
  return {};
}

}  // namespace

Result<std::unique_ptr<GpuRunner>> GpuRunner::create(const plan::PlanView& plan, KvCache& kv,
                                                     ThreadPool& pool, const GpuSetup& setup) {
  std::unique_ptr<GpuState> state = KTX_TRY(start_gpus(plan, kv, pool, setup));
  kv.set_copy([&s = *state](int64_t to, int64_t from) {
    for (GpuDevice& device : s.devices) {
      const int64_t bytes = device.slots.block_bytes();
      // An error shows at the next run.
      (void)device.gpu
          ->copy(device.kv.data() + to * bytes, device.kv.data() + from * bytes,
                 static_cast<uint64_t>(bytes))
          .ok();
    }
  });
  return std::unique_ptr<GpuRunner>(new GpuRunner(std::move(state)));
}

GpuRunner::GpuRunner(std::unique_ptr<GpuState> state) : state_(std::move(state)) {}
GpuRunner::~GpuRunner() {
  state_->kv.set_copy({});
}

bool GpuRunner::stopped() const {
  return state_->stopped;
}

Status GpuRunner::run(const Batch& batch, const PassWatch* watch) {
  GpuState& s = *state_;
  s.stopped = false;
  if (s.broken) return Error{"a GPU failed in an earlier step; start the program again"};
  GpuShape shape{batch.tokens, batch.outputs, 0, true};
  s.runs.clear();
  for (int64_t t = 0; t < batch.tokens; ++t) {
    shape.max_positions = std::max<int64_t>(shape.max_positions, batch.position[t] + 1);
    if (t == 0 || batch.sequence[t] != batch.sequence[t - 1]) s.runs.push_back({t, 0, 0});
    s.runs.back().positions = batch.position[t] + 1;
    if (++s.runs.back().tokens > 1) shape.one_token_each = false;
  }
  int bucket = -1;
  const auto found = s.buckets.find(batch.tokens, shape.max_positions);
  if (shape.one_token_each && s.setup.graphs && found) {
    bucket = *found;
    shape = s.buckets.shape(bucket);
  } else {
    shape.max_positions = s.buckets.position_bound(shape.max_positions);
    shape.runs = s.runs;
  }
  s.last_shape = shape;
  std::optional<ThreadPool::Awake> awake;
  // For prompts a layer of the GPU's takes too long: 5 to 12 % slower (H200, 2026-11).
  if (s.cpu_takes_part && bucket >= 0) awake.emplace(s.pool);
  const Status done = run_all(s, batch, shape, bucket, watch);
  if (!done) {
    s.broken = !s.setup.check_finite;
    return done;
  }
  if (s.stopped) return {};
  for (const plan::StepRecord& step : s.plan.steps) {
    if (s.plan.string(step.device) == "cpu") continue;
    s.weight_bytes += step_weight_bytes(s.plan, step, batch.rows(RowKind::Token));
  }
  return {};
}

const float* GpuRunner::logits() const {
  return reinterpret_cast<const float*>(state_->place(-1, state_->plan.facts.logits_value));
}
int64_t GpuRunner::logits_stride() const {
  const plan::ValueRecord& logits = state_->plan.values[state_->plan.facts.logits_value];
  return static_cast<int64_t>(plan::value_row_bytes(logits) / sizeof(float));
}
int64_t GpuRunner::weight_bytes() const {
  return state_->weight_bytes;
}
bool GpuRunner::keeps_logits() const {
  return state_->logits.has_value();
}
BestLogits GpuRunner::best(int64_t row, int32_t count) const {
  return state_->logits->best(row, count);
}
Status GpuRunner::fetch_logits(int64_t row) {
  GpuDevice& device = state_->devices[state_->parts.logits_device];
  KTX_TRY(device.named(state_->logits->fetch(row)));
  return device.named(device.gpu->finish());
}
std::vector<GpuFacts> GpuRunner::gpus() const {
  std::vector<GpuFacts> all;
  for (const GpuDevice& device : state_->devices) all.push_back(device.gpu->facts());
  return all;
}
Status GpuRunner::read(std::string_view device, uint32_t value, int64_t row, std::span<float> out) {
  GpuState& s = *state_;
  const uint64_t offset = plan::value_row_bytes(s.plan.values[value]) * static_cast<uint64_t>(row);
  auto* const to = reinterpret_cast<std::byte*>(out.data());
  for (size_t d = 0; d < s.devices.size(); ++d) {
    if (s.devices[d].name != device) continue;
    Gpu& gpu = *s.devices[d].gpu;
    const std::byte* from = s.place(static_cast<int>(d), value) + offset;
    KTX_TRY(gpu.download(to, from, out.size_bytes()));
    return s.devices[d].named(gpu.finish());
  }
  std::memcpy(to, s.place(-1, value) + offset, out.size_bytes());
  return {};
}

Status GpuRunner::visit_kv(std::span<std::byte* const> table, int64_t tokens, bool write,
                           const VisitRows& call) {
  GpuState& s = *state_;
  std::vector<std::vector<std::byte>> blocks;  // one of each GPU
  for (const GpuDevice& device : s.devices) blocks.emplace_back(device.slots.block_bytes());
  const auto exchange = [&](std::byte* block) -> Status {
    const int64_t number = s.kv.block_number(block);
    for (size_t d = 0; d < s.devices.size(); ++d) {
      GpuDevice& device = s.devices[d];
      const uint64_t bytes = blocks[d].size();
      std::byte* const there = device.kv.data() + number * static_cast<int64_t>(bytes);
      KTX_TRY(write ? device.gpu->upload(there, blocks[d].data(), bytes)
                    : device.gpu->download(blocks[d].data(), there, bytes));
      KTX_TRY(device.named(device.gpu->finish()));
    }
    return {};
  };
  for (int64_t begin = 0; begin < tokens; begin += KvCache::kBlockTokens) {
    const int64_t rows = std::min(KvCache::kBlockTokens, tokens - begin);
    std::byte* const block = table[begin / KvCache::kBlockTokens];
    if (!write) KTX_TRY(exchange(block));
    for (int32_t slot = 0; slot < s.kv.slots(); ++slot) {
      std::byte* part = block + s.kv.slot_offset(slot);
      const std::string_view owner = s.plan.string(s.plan.kv_slots[slot].device);
      for (size_t d = 0; d < s.devices.size(); ++d) {
        if (s.devices[d].name == owner) {
          part = blocks[d].data() + s.devices[d].slots.slot_offset(slot);
        }
      }
      KTX_TRY(visit_slot_rows(s.kv.layout(slot), part, rows, call));
    }
    if (write) KTX_TRY(exchange(block));
  }
  return {};
}

const std::vector<std::string>& GpuRunner::notes() const {
  return state_->notes;
}
void GpuRunner::enable_times(bool on) {
  state_->times.assign(on ? state_->plan.steps.size() : 0, {});
}
const std::vector<Executor::Time>& GpuRunner::times() const {
  return state_->times;
}
std::vector<uint32_t> GpuRunner::steps_of_launch(uint32_t step) const {
  return runtime::steps_of_launch(*state_, step);
}
Result<KernelTime> GpuRunner::time_steps(std::span<const uint32_t> steps) {
  return runtime::time_steps(*state_, steps);
}

}  // namespace ktx::runtime
