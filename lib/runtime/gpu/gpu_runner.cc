#include "lib/runtime/gpu/gpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "lib/plan/device_memory.h"
#include "lib/runtime/arena.h"
#include "lib/runtime/bind.h"
#include "lib/runtime/engine.h"
#include "lib/runtime/gpu/gpu_batch.h"
#include "lib/runtime/gpu/gpu_buckets.h"
#include "lib/runtime/gpu/gpu_fit.h"
#include "lib/runtime/gpu/gpu_logits.h"
#include "lib/runtime/gpu/plan_parts.h"
#include "lib/runtime/gpu/step_bytes.h"
#include "lib/runtime/gpu/weight_upload.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

using plan::PlanView;
using plan::StepRecord;

// Up to here a kernel's copy is faster than the copy engine's.
constexpr uint64_t kSmallTransfer = 64 << 10;

Error at(const std::string& device, const Error& error) {
  return Error{fmt::format("{}: {}", device, error.message)};
}

// A GPU with all that it holds. Members are freed from the last to the first.
struct Device {
  std::string name;  // "cuda:0"
  std::unique_ptr<Gpu> gpu;
  GpuMemory weights, arena, kv, batch, workspace;
  KvCache slots;  // the arrangement only
  plan::ArenaLayout layout;
  WeightImage image;
  std::vector<std::byte*> blobs;
  std::vector<std::unique_ptr<GpuStep>> steps;  // by record of the plan
  std::vector<std::unique_ptr<GpuStep>> fused;
  // By record: what a pass of one token launches there; null: another step does it too.
  std::vector<GpuStep*> one_token;
  GpuBatch inputs;
};

// A value's place on some device.
struct ValueCopy {
  const plan::ValueRecord* value = nullptr;
  uint64_t bytes(const GpuShape& shape) const {
    return static_cast<uint64_t>(shape.rows(static_cast<RowKind>(value->rows))) *
           plan::value_row_bytes(*value);
  }
};

// Whether steps are taken together (fusions.h).
bool fuses(const GpuShape& shape) {
  return shape.tokens == 1 && shape.outputs == 1;
}

// Host memory that a GPU knows, let go at the end.
class Pinned {
 public:
  Pinned() = default;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    if (data_) gpu_->unpin(data_);
  }
  Status pin(Gpu& gpu, std::byte* data, uint64_t bytes) {
    if (bytes == 0) return {};
    KTX_TRY(gpu.pin(data, bytes));
    gpu_ = &gpu;
    data_ = data;
    return {};
  }

 private:
  Gpu* gpu_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace

struct GpuRunner::State {
  State(const PlanView& plan, KvCache& kv, ThreadPool& pool, const GpuSetup& setup)
      : plan(plan), kv(kv), pool(pool), setup(setup) {}
  ~State() {
    // Nothing may be in flight when memory goes.
    for (Device& device : devices) {
      if (device.gpu) (void)device.gpu->finish().ok();
    }
  }

  Status open_devices();
  Status allocate(Device& device);
  Status bind_steps(Device& device);
  Status fuse_steps(size_t device);
  Status bind_cpu_parts();
  Status allocate_workspace(Device& device);
  Status place_logits();
  Status upload(Device& device);
  Status capture_all();
  Status capture(int bucket);

  Status run(const Batch& batch);
  Status send_inputs(const Batch& batch, const GpuShape& shape);
  Status run_part(size_t part, const Batch& batch, const GpuShape& shape, int bucket);
  Status queue(const Part& part, const GpuShape& shape);
  Status queue_step(const Part& part, uint32_t index, const GpuShape& shape);
  GpuCopy transfer_of(const Part& part, const StepRecord& step, const GpuShape& shape) const;
  Status transfer(const Part& part, const StepRecord& step, const GpuShape& shape);
  bool steps_are_watched() const { return setup.check_finite || setup.on_result || !times.empty(); }
  Status watched(const Part& part, const Batch& batch, const GpuShape& shape);
  Status check_outputs(const Part& part, uint32_t index, const GpuShape& shape);
  Result<KernelTime> time_steps(std::span<const uint32_t> steps);
  Result<double> time_graph(const Part& part, std::span<const uint32_t> steps);
  void add_sources(uint32_t step, std::vector<uint32_t>& out) const;

  Error in_step(uint32_t index, const std::string& device, const Error& error) const {
    const StepRecord& step = plan.steps[index];
    return Error{fmt::format("{}: step {} ({} of {}): {}", device, index,
                             info(static_cast<StepOp>(step.op)).name,
                             printable(plan.string(step.module)), error.message)};
  }
  // Where a value lies on a GPU (device >= 0) or on the CPU.
  std::byte* place(int device, uint32_t value) const {
    const uint32_t buffer = plan.values[value].buffer;
    return device < 0 ? host_arena.data() + host_layout.offsets[buffer]
                      : devices[device].arena.data() + devices[device].layout.offsets[buffer];
  }

  const PlanView& plan;
  KvCache& kv;
  ThreadPool& pool;
  GpuSetup setup;
  PlanParts parts;
  GpuBuckets buckets;
  GpuBatchLayout batch_layout;
  Arena host_arena, host_batch;
  plan::ArenaLayout host_layout;
  std::vector<Device> devices;
  std::optional<GpuLogits> logits;
  std::vector<std::unique_ptr<Pinned>> pins;
  std::vector<std::optional<Executor>> executors;              // by part
  std::vector<GpuMark> marks;                                  // by part
  std::vector<std::vector<std::unique_ptr<GpuGraph>>> graphs;  // by bucket, part
  std::vector<std::string> notes, upload_notes;
  std::vector<Executor::Time> times;
  GpuShape last_shape;
  std::vector<Fusion> fusions;  // that are used
  int64_t weight_bytes = 0;
  bool broken = false;
  bool cpu_takes_part = false;
};

Status GpuRunner::State::open_devices() {
  parts = cut_parts(plan);
  buckets = GpuBuckets(setup.shape.max_batch, setup.shape.ctx);
  batch_layout = GpuBatchLayout(setup.shape.step_tokens, setup.shape.step_outputs,
                                setup.shape.max_batch, setup.shape.ctx);
  const auto needs = KTX_TRY(plan::memory_by_device(plan, setup.shape));
  for (const std::string& name : parts.gpus) {
    const int number = gpu_number(name);
    if (number < 0) {
      return Error{
          fmt::format("the plan has steps on '{}', which is no device of this version; "
                      "devices are cpu and cuda:N",
                      printable(name))};
    }
    Device& device = devices.emplace_back();
    device.name = name;
    auto gpu = (setup.open ? setup.open : OpenGpu(open_gpu))(number);
    if (!gpu) return at(name, gpu.error());
    device.gpu = gpu.take();
    KTX_TRY(check_gpu_generation(name, device.gpu->facts()));
    for (const plan::DeviceMemory& need : needs) {
      if (need.name != name) continue;
      KTX_TRY(check_gpu_fit(need, device.gpu->facts(), setup.shape, setup.kv_blocks));
    }
  }
  return {};
}

Status GpuRunner::State::allocate(Device& device) {
  Gpu& gpu = *device.gpu;
  std::vector<bool> here;
  for (const plan::KvSlotRecord& slot : plan.kv_slots) {
    here.push_back(plan.string(slot.device) == device.name);
  }
  device.slots = KTX_TRY(KvCache::create(plan.kv_slots, setup.shape.kv_type, 0, here));
  device.layout = KTX_TRY(plan::lay_out_device_arena(plan, device.name, setup.shape.step_tokens,
                                                     setup.shape.step_outputs));
  device.image = lay_out_weights(plan, device.name);
  device.weights = KTX_TRY(gpu.allocate(device.image.bytes, "weights"));
  device.arena = KTX_TRY(gpu.allocate(device.layout.total_bytes, "activations"));
  device.kv = KTX_TRY(gpu.allocate(
      static_cast<uint64_t>(device.slots.block_bytes() * setup.kv_blocks), "KV cache"));
  device.batch =
      KTX_TRY(gpu.allocate(static_cast<uint64_t>(batch_layout.bytes()), "inputs of a step"));
  KTX_TRY(gpu.clear(device.arena.data(), device.arena.size()));
  KTX_TRY(gpu.clear(device.kv.data(), device.kv.size()));
  device.blobs.assign(plan.blobs.size(), nullptr);
  for (const WeightImage::Blob& blob : device.image.blobs) {
    device.blobs[blob.blob] = device.weights.data() + blob.offset;
  }
  device.inputs = batch_layout.at(device.batch.data());
  return {};
}

Status GpuRunner::State::bind_steps(Device& device) {
  device.steps.resize(plan.steps.size());
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const StepRecord& step = plan.steps[i];
    if (plan.string(step.device) != device.name ||
        step.op == static_cast<uint32_t>(StepOp::Transfer)) {
      continue;
    }
    const GpuBindContext context{
        plan,         step,         device.arena.data(), device.layout.offsets,
        device.blobs, device.slots, device.kv.data(),    device.inputs};
    auto bound = device.gpu->make_step(context);
    if (!bound) return in_step(i, device.name, bound.error());
    device.steps[i] = bound.take();
  }
  return {};
}

Status GpuRunner::State::fuse_steps(size_t number) {
  Device& device = devices[number];
  for (const auto& step : device.steps) device.one_token.push_back(step.get());
  for (const Part& part : parts.parts) {
    if (part.kind != Part::Kind::Gpu || part.device != static_cast<int>(number)) continue;
    for (const Fusion& fusion : find_fusions(plan, part.first_step, part.step_count)) {
      std::vector<GpuStep*> steps;
      for (uint32_t i : fusion.steps) steps.push_back(device.steps[i].get());
      const uint32_t last = fusion.steps.back();
      const GpuBindContext context{
          plan,         plan.steps[last], device.arena.data(), device.layout.offsets,
          device.blobs, device.slots,     device.kv.data(),    device.inputs};
      auto made = device.gpu->make_fused(fusion, steps, context);
      if (!made) return in_step(last, device.name, made.error());
      if (!*made) continue;
      for (uint32_t i : fusion.steps) device.one_token[i] = nullptr;
      device.fused.push_back(made.take());
      device.one_token[last] = device.fused.back().get();
      fusions.push_back(fusion);
    }
  }
  return {};
}

Status GpuRunner::State::bind_cpu_parts() {
  executors.resize(parts.parts.size());
  for (size_t p = 0; p < parts.parts.size(); ++p) {
    const Part& part = parts.parts[p];
    if (part.kind != Part::Kind::Cpu) continue;
    BoundPlan bound = KTX_TRY(bind(plan, kv,
                                   {.arena = host_arena.data(),
                                    .buffer_offsets = host_layout.offsets,
                                    .isa = setup.isa,
                                    .precision = setup.precision,
                                    .threads = pool.threads(),
                                    .first_step = part.first_step,
                                    .step_count = part.step_count}));
    executors[p] = KTX_TRY(Executor::create(std::move(bound), pool));
  }
  return {};
}

Status GpuRunner::State::place_logits() {
  if (parts.logits_device < 0) return {};
  Device& device = devices[parts.logits_device];
  const uint32_t value = plan.inputs(plan.steps[parts.logits_step])[0].value;
  const Status allocated = logits.emplace().allocate(
      *device.gpu, {.device = place(parts.logits_device, value),
                    .host = place(-1, plan.facts.logits_value),
                    .row_bytes = static_cast<int64_t>(plan::value_row_bytes(plan.values[value])),
                    .vocabulary = plan.facts.vocab_size,
                    .most_rows = setup.shape.step_outputs});
  return allocated ? Status{} : Status(at(device.name, allocated.error()));
}

// The largest that any step asks for: over the buckets, and over chunks up to the largest.
Status GpuRunner::State::allocate_workspace(Device& device) {
  std::vector<GpuShape> shapes;
  for (int i = 0; i < buckets.count(); ++i) shapes.push_back(buckets.shape(i));
  for (int64_t positions : buckets.position_buckets()) {
    for (bool each : {false, true}) {
      shapes.push_back({setup.shape.step_tokens, setup.shape.step_outputs, positions, each});
    }
  }
  int64_t most = 0;
  const auto ask = [&](const GpuStep& step, const GpuShape& shape) {
    most = std::max(most, step.workspace_bytes(shape));
  };
  for (const GpuShape& shape : shapes) {
    for (const auto& step : device.steps) {
      if (step) ask(*step, shape);
    }
    for (const auto& step : device.fused) {
      if (fuses(shape)) ask(*step, shape);
    }
  }
  if (logits && &device == &devices[parts.logits_device]) {
    most = std::max(most, logits->workspace_bytes());
  }
  device.workspace = KTX_TRY(device.gpu->allocate(static_cast<uint64_t>(most), "partial results"));
  return {};
}

Status GpuRunner::State::upload(Device& device) {
  const Timer timer;
  const Status done = upload_weights(plan, device.image, *device.gpu, device.weights.data(), pool);
  if (!done) return at(device.name, done.error());
  const double seconds = timer.seconds();
  upload_notes.push_back(
      fmt::format("{} ({}): {} of weights in {:.2f} s ({:.1f} GB/s)", device.name,
                  printable(device.gpu->facts().name), human_bytes(device.image.bytes), seconds,
                  seconds > 0 ? static_cast<double>(device.image.bytes) / seconds / 1e9 : 0.0));
  return {};
}

Status GpuRunner::State::capture(int bucket) {
  const GpuShape shape = buckets.shape(bucket);
  graphs[bucket].resize(parts.parts.size());
  for (size_t p = 0; p < parts.parts.size(); ++p) {
    const Part& part = parts.parts[p];
    if (part.kind != Part::Kind::Gpu) continue;
    Gpu& gpu = *devices[part.device].gpu;
    KTX_TRY(gpu.begin_capture());
    const Status queued = queue(part, shape);
    auto graph = gpu.end_capture();  // also after a failure
    KTX_TRY(queued);
    if (!graph) return at(devices[part.device].name, graph.error());
    graphs[bucket][p] = graph.take();
  }
  return {};
}

Status GpuRunner::State::capture_all() {
  graphs.resize(buckets.count());
  if (!setup.graphs) return {};
  const Timer timer;
  std::vector<uint64_t> before;
  for (Device& device : devices) {
    KTX_TRY(device.gpu->finish());
    before.push_back(device.gpu->free_bytes());
  }
  for (int bucket = 0; bucket < buckets.count(); ++bucket) KTX_TRY(capture(bucket));
  uint64_t bytes = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    const uint64_t now = devices[d].gpu->free_bytes();
    if (now < before[d]) bytes += before[d] - now;
  }
  notes.push_back(fmt::format("graphs for steps of {} tokens, up to {} positions: {} in {:.2f} s",
                              join(std::span<const std::string>([&] {
                                     std::vector<std::string> texts;
                                     for (int64_t n : buckets.token_buckets())
                                       texts.push_back(std::to_string(n));
                                     return texts;
                                   }()),
                                   ", "),
                              buckets.position_buckets().back(), human_bytes(bytes),
                              timer.seconds()));
  return {};
}

// --- a run -------------------------------------------------------------------

Status GpuRunner::State::send_inputs(const Batch& batch, const GpuShape& shape) {
  const int64_t sequences = batch.sequence[batch.tokens - 1] + 1;
  const int64_t bytes = batch_layout.fill(host_batch.data(), batch, sequences, shape, kv);
  for (Device& device : devices) {
    KTX_TRY(
        device.gpu->upload(device.batch.data(), host_batch.data(), static_cast<uint64_t>(bytes)));
  }
  return {};
}

GpuCopy GpuRunner::State::transfer_of(const Part& part, const StepRecord& step,
                                      const GpuShape& shape) const {
  const uint32_t x = plan.inputs(step)[0].value;
  const uint32_t y = plan.outputs(step)[0].value;
  const uint64_t bytes = ValueCopy{&plan.values[x]}.bytes(shape);
  if (part.kind == Part::Kind::Peer) return {place(part.device, y), place(part.from, x), bytes};
  if (plan.string(step.device) == "cpu") return {place(-1, y), place(part.device, x), bytes};
  return {place(part.device, y), place(-1, x), bytes};
}

Status GpuRunner::State::transfer(const Part& part, const StepRecord& step, const GpuShape& shape) {
  const GpuCopy copy = transfer_of(part, step, shape);
  Gpu& gpu = *devices[part.device].gpu;
  if (part.kind == Part::Kind::Peer) {
    return gpu.copy_from(*devices[part.from].gpu, copy.to, copy.from, copy.bytes);
  }
  if (plan.string(step.device) == "cpu") return gpu.download(copy.to, copy.from, copy.bytes);
  return gpu.upload(copy.to, copy.from, copy.bytes);
}

Status GpuRunner::State::queue_step(const Part& part, uint32_t index, const GpuShape& shape) {
  const StepRecord& record = plan.steps[index];
  Device& device = devices[part.device];
  const bool transfers = record.op == static_cast<uint32_t>(StepOp::Transfer);
  const bool fused = fuses(shape) && !setup.check_finite;
  GpuStep* step = fused ? device.one_token[index] : device.steps[index].get();
  if (!transfers && !step) return {};
  const Status queued = transfers ? transfer(part, record, shape)
                                  : step->launch(shape, device.workspace.data(),
                                                 static_cast<int64_t>(device.workspace.size()));
  return queued ? Status{} : Status(in_step(index, device.name, queued.error()));
}

// Neighbouring small transfers between the GPU and the host go in one launch.
Status GpuRunner::State::queue(const Part& part, const GpuShape& shape) {
  std::array<GpuCopy, kMostCopies> small;
  size_t count = 0;
  const auto flush = [&](uint32_t before) -> Status {
    if (count == 0) return {};
    Device& device = devices[part.device];
    const Status copied = device.gpu->copy_small(std::span(small).first(count));
    count = 0;
    return copied ? Status{} : Status(in_step(before - 1, device.name, copied.error()));
  };
  for (uint32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
    const StepRecord& step = plan.steps[i];
    if (step.op == static_cast<uint32_t>(StepOp::Transfer) && part.kind == Part::Kind::Gpu) {
      const GpuCopy copy = transfer_of(part, step, shape);
      if (copy.bytes <= kSmallTransfer && copy.bytes % 4 == 0) {
        small[count++] = copy;
        if (count == small.size()) KTX_TRY(flush(i + 1));
        continue;
      }
    }
    KTX_TRY(flush(i));
    KTX_TRY(queue_step(part, i, shape));
  }
  return flush(part.first_step + part.step_count);
}

// Every step awaited: for its time, or to look at what it wrote.
Status GpuRunner::State::watched(const Part& part, const Batch& batch, const GpuShape& shape) {
  Gpu& gpu = *devices[part.device].gpu;
  for (uint32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
    KTX_TRY(gpu.finish());
    const Timer timer;
    KTX_TRY(queue_step(part, i, shape));
    const Status done = gpu.finish();
    if (!done) return in_step(i, devices[part.device].name, done.error());
    if (!times.empty()) {
      times[i].seconds += timer.seconds();
      times[i].runs += 1;
      times[i].tokens += batch.tokens;
      times[i].weight_bytes += step_weight_bytes(plan, plan.steps[i], batch.tokens);
    }
    if (setup.check_finite || setup.on_result) KTX_TRY(check_outputs(part, i, shape));
  }
  return {};
}

Status GpuRunner::State::check_outputs(const Part& part, uint32_t index, const GpuShape& shape) {
  const StepRecord& step = plan.steps[index];
  const bool to_cpu = plan.string(step.device) == "cpu";
  Device& device = devices[part.device];
  for (const plan::OperandRecord& operand : plan.outputs(step)) {
    const plan::ValueRecord& value = plan.values[operand.value];
    if (value.type != static_cast<uint8_t>(ValueType::F32) || to_cpu) continue;
    const int64_t stride = static_cast<int64_t>(plan::value_row_bytes(value)) / 4;
    std::vector<float> rows(
        static_cast<size_t>(shape.rows(static_cast<RowKind>(value.rows)) * stride));
    KTX_TRY(device.gpu->download(reinterpret_cast<std::byte*>(rows.data()),
                                 place(part.device, operand.value), rows.size() * 4));
    KTX_TRY(device.gpu->finish());
    if (setup.on_result) {
      setup.on_result(
          {plan.string(value.name), rows, stride, operand.offset, int64_t{operand.width}});
    }
    for (size_t i = 0; i < rows.size() && setup.check_finite; ++i) {
      const int64_t column = static_cast<int64_t>(i) % stride - operand.offset;
      if (column < 0 || column >= operand.width || std::isfinite(rows[i])) continue;
      return in_step(index, device.name,
                     Error{fmt::format("row {}, element {} of '{}' is {}; the weights or the "
                                       "prompt overflow here",
                                       static_cast<int64_t>(i) / stride, column,
                                       printable(plan.string(value.name)), rows[i])});
    }
  }
  return {};
}

Status GpuRunner::State::run_part(size_t p, const Batch& batch, const GpuShape& shape, int bucket) {
  const Part& part = parts.parts[p];
  if (part.kind == Part::Kind::Cpu) {
    for (int wait : part.waits_for) {
      Device& device = devices[parts.parts[wait].device];
      const Status done = device.gpu->wait(marks[wait]);
      if (!done) return at(device.name, done.error());
    }
    const int64_t before = executors[p]->weight_bytes();
    KTX_TRY(executors[p]->run(batch));
    weight_bytes += executors[p]->weight_bytes() - before;
    return {};
  }
  Device& device = devices[part.device];
  if (steps_are_watched()) {
    KTX_TRY(watched(part, batch, shape));
  } else if (bucket >= 0 && graphs[bucket].size() > p && graphs[bucket][p]) {
    const Status launched = device.gpu->launch(*graphs[bucket][p]);
    if (!launched) return at(device.name, launched.error());
  } else {
    KTX_TRY(queue(part, shape));
  }
  if (part.awaited) {
    const Status set = device.gpu->set(marks[p]);
    if (!set) return at(device.name, set.error());
  }
  return {};
}

Status GpuRunner::State::run(const Batch& batch) {
  if (broken) return Error{"a GPU failed in an earlier step; start the program again"};
  GpuShape shape{batch.tokens, batch.outputs, 0, true};
  for (int64_t t = 0; t < batch.tokens; ++t) {
    shape.max_positions = std::max<int64_t>(shape.max_positions, batch.position[t] + 1);
    if (t > 0 && batch.sequence[t] == batch.sequence[t - 1]) shape.one_token_each = false;
  }
  int bucket = -1;
  const auto found = buckets.find(batch.tokens, shape.max_positions);
  if (shape.one_token_each && setup.graphs && found) {
    bucket = *found;
    shape = buckets.shape(bucket);
  } else {
    shape.max_positions = buckets.position_bound(shape.max_positions);
  }
  last_shape = shape;
  const auto go = [&]() -> Status {
    KTX_TRY(send_inputs(batch, shape));
    for (size_t p = 0; p < parts.parts.size(); ++p) KTX_TRY(run_part(p, batch, shape, bucket));
    if (logits) {
      Device& device = devices[parts.logits_device];
      const Status queued = logits->queue(batch, device.workspace.data());
      if (!queued) return at(device.name, queued.error());
    }
    for (Device& device : devices) {
      const Status done = device.gpu->finish();
      if (!done) return at(device.name, done.error());
    }
    return {};
  };
  std::optional<ThreadPool::Awake> awake;
  // For prompts a layer of the GPU's takes too long: 5 to 12 % slower (H200, 2026-11).
  if (cpu_takes_part && bucket >= 0) awake.emplace(pool);
  const Status done = go();
  if (!done) {
    broken = !setup.check_finite;
    return done;
  }
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.string(plan.steps[i].device) == "cpu") continue;
    weight_bytes += step_weight_bytes(plan, plan.steps[i], batch.rows(RowKind::Token));
  }
  return {};
}

// Steps that make the whole numbers which `step` reads (the chosen experts), the first one
// first. Values take turns in memory, so that by now others may lie there.
void GpuRunner::State::add_sources(uint32_t step, std::vector<uint32_t>& out) const {
  const auto writes = [&](uint32_t index, uint32_t value) {
    for (const plan::OperandRecord& output : plan.outputs(plan.steps[index])) {
      if (output.value == value) return true;
    }
    return false;
  };
  for (const plan::OperandRecord& input : plan.inputs(plan.steps[step])) {
    if (input.value == plan::kNone ||
        plan.values[input.value].type != static_cast<uint8_t>(ValueType::I32)) {
      continue;
    }
    uint32_t source = step;
    while (source > 0 && !writes(source - 1, input.value)) --source;
    if (source == 0 || std::find(out.begin(), out.end(), source - 1) != out.end()) continue;
    add_sources(source - 1, out);
    out.push_back(source - 1);
  }
}

// Seconds of a graph of the steps, in this order; the best of some runs.
Result<double> GpuRunner::State::time_graph(const Part& part, std::span<const uint32_t> steps) {
  constexpr int kRuns = 3;
  Gpu& gpu = *devices[part.device].gpu;
  KTX_TRY(gpu.begin_capture());
  Status queued;
  for (size_t i = 0; i < steps.size() && queued; ++i) {
    queued = queue_step(part, steps[i], last_shape);
  }
  auto captured = gpu.end_capture();  // also after a failure
  KTX_TRY(queued);
  const std::unique_ptr<GpuGraph> graph = KTX_TRY(std::move(captured));
  double best = INFINITY;
  for (int run = 0; run <= kRuns; ++run) {
    const Timer timer;
    KTX_TRY(gpu.launch(*graph));
    KTX_TRY(gpu.finish());
    if (run > 0) best = std::min(best, timer.seconds());
  }
  return best;
}

// Every launch is of another step than the one before, so that weights come from memory
// as they do in a run. What a step needs before it is launched with it, and timed again
// alone.
Result<KernelTime> GpuRunner::State::time_steps(std::span<const uint32_t> steps) {
  constexpr int64_t kLaunches = 64;
  if (last_shape.tokens == 0) return Error{"no step has run yet; run a batch first"};
  const auto on_gpu = [&](const Part& part) {
    return part.kind == Part::Kind::Gpu && steps[0] >= part.first_step &&
           steps[0] < part.first_step + part.step_count;
  };
  const auto part = std::find_if(parts.parts.begin(), parts.parts.end(), on_gpu);
  if (part == parts.parts.end()) return Error{fmt::format("step {} is on no GPU", steps[0])};
  const int64_t rounds = std::max<int64_t>(1, kLaunches / std::ssize(steps));
  std::vector<uint32_t> sources, all;
  for (int64_t round = 0; round < rounds; ++round) {
    for (uint32_t step : steps) {
      std::vector<uint32_t> before;
      add_sources(step, before);
      sources.insert(sources.end(), before.begin(), before.end());
      all.insert(all.end(), before.begin(), before.end());
      all.push_back(step);
    }
  }
  KTX_TRY(devices[part->device].gpu->finish());
  double seconds = KTX_TRY(time_graph(*part, all));
  if (!sources.empty()) seconds -= KTX_TRY(time_graph(*part, sources));
  return KernelTime{std::max(seconds, 1e-9) / static_cast<double>(rounds * std::ssize(steps)),
                    last_shape.tokens, last_shape.outputs};
}

// --- the outside -------------------------------------------------------------

bool uses_gpus(const PlanView& plan) {
  return plan::plan_devices(plan).size() > 1;
}

plan::RunShape gpu_run_shape(plan::RunShape shape) {
  const int64_t largest = GpuBuckets(shape.max_batch, shape.ctx).largest_batch();
  shape.step_tokens = std::max(shape.step_tokens, largest);
  shape.step_outputs = std::max(shape.step_outputs, largest);
  return shape;
}

std::vector<bool> cpu_slots(const PlanView& plan) {
  std::vector<bool> here;
  for (const plan::KvSlotRecord& slot : plan.kv_slots) {
    here.push_back(plan.string(slot.device) == "cpu");
  }
  return here;
}

Result<std::unique_ptr<GpuRunner>> GpuRunner::create(const PlanView& plan, KvCache& kv,
                                                     ThreadPool& pool, const GpuSetup& setup) {
  auto state = std::make_unique<State>(plan, kv, pool, setup);
  State& s = *state;
  const Timer timer;
  KTX_TRY(s.open_devices());
  const double opened = timer.seconds();
  s.host_layout = KTX_TRY(
      plan::lay_out_device_arena(plan, "cpu", setup.shape.step_tokens, setup.shape.step_outputs));
  s.host_arena = KTX_TRY(Arena::allocate(s.host_layout.total_bytes, "activations"));
  s.host_batch =
      KTX_TRY(Arena::allocate(static_cast<uint64_t>(s.batch_layout.bytes()), "inputs of a step"));
  for (Arena* arena : {&s.host_arena, &s.host_batch}) {
    s.pins.push_back(std::make_unique<Pinned>());
    const Status pinned = s.pins.back()->pin(*s.devices[0].gpu, arena->data(), arena->size());
    if (!pinned) return at(s.devices[0].name, pinned.error());
  }
  for (size_t i = 0; i < s.devices.size(); ++i) {
    Device& device = s.devices[i];
    const Status allocated = s.allocate(device);
    if (!allocated) return at(device.name, allocated.error());
    KTX_TRY(s.bind_steps(device));
    KTX_TRY(s.fuse_steps(i));
  }
  KTX_TRY(s.place_logits());
  for (Device& device : s.devices) {
    const Status workspace = s.allocate_workspace(device);
    if (!workspace) return at(device.name, workspace.error());
  }
  KTX_TRY(s.bind_cpu_parts());
  s.cpu_takes_part = std::any_of(s.executors.begin(), s.executors.end(),
                                 [](const auto& executor) { return executor.has_value(); });
  for (const Part& part : s.parts.parts) {
    s.marks.push_back(part.awaited ? KTX_TRY(s.devices[part.device].gpu->new_mark()) : 0);
  }
  const double bound = timer.seconds();
  // Graphs are captured while weights go up: neither needs the other.
  Status uploaded;
  {
    std::jthread uploads([&] {
      for (Device& device : s.devices) {
        uploaded = s.upload(device);
        if (!uploaded) return;
      }
    });
    const Status captured = s.capture_all();
    uploads.join();
    KTX_TRY(captured);
  }
  KTX_TRY(uploaded);
  s.notes.insert(s.notes.end(), s.upload_notes.begin(), s.upload_notes.end());
  s.notes.push_back(
      fmt::format("ready in {:.2f} s: {:.2f} s for the driver, {:.2f} s for memory "
                  "and steps, {:.2f} s for weights and graphs",
                  timer.seconds(), opened, bound - opened, timer.seconds() - bound));
  kv.set_copy([&s](int64_t to, int64_t from) {
    for (Device& device : s.devices) {
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

GpuRunner::GpuRunner(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuRunner::~GpuRunner() {
  state_->kv.set_copy({});
}

Status GpuRunner::run(const Batch& batch) {
  return state_->run(batch);
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
std::vector<GpuFacts> GpuRunner::gpus() const {
  std::vector<GpuFacts> all;
  for (const Device& device : state_->devices) all.push_back(device.gpu->facts());
  return all;
}
Status GpuRunner::read(std::string_view device, uint32_t value, int64_t row, std::span<float> out) {
  State& s = *state_;
  const uint64_t offset = plan::value_row_bytes(s.plan.values[value]) * static_cast<uint64_t>(row);
  auto* const to = reinterpret_cast<std::byte*>(out.data());
  for (size_t d = 0; d < s.devices.size(); ++d) {
    if (s.devices[d].name != device) continue;
    Gpu& gpu = *s.devices[d].gpu;
    const std::byte* from = s.place(static_cast<int>(d), value) + offset;
    KTX_TRY(gpu.download(to, from, out.size_bytes()));
    const Status done = gpu.finish();
    return done ? done : Status(at(s.devices[d].name, done.error()));
  }
  std::memcpy(to, s.place(-1, value) + offset, out.size_bytes());
  return {};
}

Status GpuRunner::visit_kv(std::span<std::byte* const> table, int64_t tokens, bool write,
                           const VisitRows& call) {
  State& s = *state_;
  std::vector<std::vector<std::byte>> blocks;  // one of each GPU
  for (const Device& device : s.devices) blocks.emplace_back(device.slots.block_bytes());
  const auto exchange = [&](std::byte* block) -> Status {
    const int64_t number = s.kv.block_number(block);
    for (size_t d = 0; d < s.devices.size(); ++d) {
      Device& device = s.devices[d];
      const uint64_t bytes = blocks[d].size();
      std::byte* const there = device.kv.data() + number * static_cast<int64_t>(bytes);
      KTX_TRY(write ? device.gpu->upload(there, blocks[d].data(), bytes)
                    : device.gpu->download(blocks[d].data(), there, bytes));
      const Status done = device.gpu->finish();
      if (!done) return at(device.name, done.error());
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
  if (fuses(state_->last_shape) && !state_->setup.check_finite) {
    for (const Fusion& fusion : state_->fusions) {
      if (std::binary_search(fusion.steps.begin(), fusion.steps.end(), step)) {
        return step == fusion.steps.back() ? fusion.steps : std::vector<uint32_t>();
      }
    }
  }
  return {step};
}
Result<KernelTime> GpuRunner::time_steps(std::span<const uint32_t> steps) {
  return state_->time_steps(steps);
}

}  // namespace ktx::runtime
