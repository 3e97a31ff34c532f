#include "lib/runtime/gpu/gpu_queue.h"

#include <array>

#include "lib/runtime/gpu/gpu_sums.h"

namespace ktx::runtime {
namespace {

// Up to here a kernel's copy is faster than the copy engine's.
constexpr uint64_t kSmallTransfer = 64 << 10;

// Where a value of the CPU lies in this pass.
std::byte* host_place(const GpuState& s, const Part& part, program::ValueId value) {
  const ExpertStreams* streams = s.devices[part.device].streams.get();
  std::byte* const streamed = s.streaming && streams ? streams->place(value) : nullptr;
  return streamed ? streamed : s.place(-1, value);
}

GpuCopy transfer_of(const GpuState& s, const Part& part, const program::Step& step,
                    const GpuShape& shape) {
  const program::ValueId x = step.inputs[0].value, y = step.outputs[0].value;
  const program::Value& value = s.program.values[x];
  const auto bytes = static_cast<uint64_t>(shape.rows(value.rows) * program::row_bytes(value));
  if (part.kind == Part::Kind::Peer) return {s.place(part.device, y), s.place(part.from, x), bytes};
  if (step.device == "cpu") return {host_place(s, part, y), s.place(part.device, x), bytes};
  return {s.place(part.device, y), host_place(s, part, x), bytes};
}

Status transfer(GpuState& s, const Part& part, const program::Step& step, const GpuShape& shape) {
  const GpuCopy copy = transfer_of(s, part, step, shape);
  Gpu& gpu = *s.devices[part.device].gpu;
  if (part.kind == Part::Kind::Peer) {
    return gpu.copy_from(*s.devices[part.from].gpu, copy.to, copy.from, copy.bytes);
  }
  const program::ValueId of_cpu = (step.device == "cpu" ? step.outputs : step.inputs)[0].value;
  std::byte* const streamed = host_place(s, part, of_cpu);
  std::byte* const host = s.place(-1, of_cpu);
  if (streamed != host) {
    KTX_TRY(gpu.copy(copy.to, copy.from, copy.bytes));
    if (!s.joins()) return {};
    // The CPU has the same inputs, and its sum is added to the GPU's.
    if (copy.to == streamed) return gpu.download(host, copy.from, copy.bytes);
    // By a kernel: the copy engine would bring it behind experts that are on their way already
    // (prompts of 1,024 of the 30B 2,700 t/s, without joint passes 3,060; H100, 2026-11).
    const GpuCopy sum{streamed, host, copy.bytes};
    KTX_TRY(s.pinned ? gpu.copy_small({&sum, 1}) : gpu.upload(streamed, host, copy.bytes));
    const int64_t width = program::row_bytes(s.program.values[of_cpu]) / 4;
    return gpu.add(reinterpret_cast<float*>(copy.to), reinterpret_cast<const float*>(streamed),
                   static_cast<int64_t>(copy.bytes) / 4 / width, width);
  }
  if (s.has_boundary(of_cpu)) return gpu.copy(copy.to, copy.from, copy.bytes);
  if (step.device == "cpu") return gpu.download(copy.to, copy.from, copy.bytes);
  return gpu.upload(copy.to, copy.from, copy.bytes);
}

}  // namespace

Status queue_step(GpuState& s, const Part& part, uint32_t index, const GpuShape& shape) {
  const program::Step& own = s.program.steps[index];
  GpuDevice& device = s.devices[part.device];
  const bool transfers = own.op == StepOp::Transfer;
  if (part.kind == Part::Kind::Reduce) {
    const Status queued = device.traced({.step = index, .steps = 1, .what = "sum"},
                                        [&] { return queue_sum(s, part, own, shape); });
    return queued ? Status{} : Status(s.in_step(index, device.name, queued.error()));
  }
  GpuStep* step = transfers ? nullptr : device.launches.find(index, shape, s.fuses(shape));
  if (!transfers && !step) return {};
  if (s.streaming && device.streams && device.streams->computes(index)) {
    KTX_TRY(device.named(device.streams->begin_step(index)));
  }
  TraceSpan span{.step = index, .steps = 1};
  if (device.trace && !transfers) {
    span.steps =
        static_cast<uint32_t>(device.launches.steps_of_launch(index, shape, s.fuses(shape)).size());
  }
  const Status queued = device.traced(span, [&] {
    return transfers ? transfer(s, part, own, shape)
                     : step->launch(shape, device.workspace.data(),
                                    static_cast<int64_t>(device.workspace.size()));
  });
  return queued ? Status{} : Status(s.in_step(index, device.name, queued.error()));
}

Status queue_part(GpuState& s, const Part& part, const GpuShape& shape) {
  std::array<GpuCopy, kMostCopies> small;
  size_t count = 0;
  const auto flush = [&](uint32_t before) -> Status {
    if (count == 0) return {};
    GpuDevice& device = s.devices[part.device];
    const TraceSpan span{.step = before - 1, .steps = 1, .what = "transfer"};
    const Status copied =
        device.traced(span, [&] { return device.gpu->copy_small(std::span(small).first(count)); });
    count = 0;
    return copied ? Status{} : Status(s.in_step(before - 1, device.name, copied.error()));
  };
  for (uint32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
    const program::Step& step = s.program.steps[i];
    if (s.pinned && step.op == StepOp::Transfer && part.kind == Part::Kind::Gpu && !s.joins()) {
      const GpuCopy copy = transfer_of(s, part, step, shape);
      if (copy.bytes <= kSmallTransfer && copy.bytes % 4 == 0) {
        small[count++] = copy;
        if (count == small.size()) KTX_TRY(flush(i + 1));
        continue;
      }
    }
    KTX_TRY(flush(i));
    KTX_TRY(queue_step(s, part, i, shape));
  }
  return flush(part.first_step + part.step_count);
}

}  // namespace ktx::runtime
