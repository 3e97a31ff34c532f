// Captures the launches of steps with one token per sequence as CUDA graphs, for every bucket
// of shapes (gpu_buckets.h) and every part of the plan that a GPU runs. Parts between which GPUs
// add up what all of them have are one graph of each GPU, as the sums wait on the GPUs.
#pragma once

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// Fills state.graphs and notes their cost in state.notes. Only queues on the devices, so
// that weights can go up beside it.
Status capture_graphs(GpuState& state);

// Whether a part can be one graph: not a part of the CPU, nor one with copies that involve the
// host.
inline bool can_be_graph(const GpuState& s, const Part& part) {
  if (part.kind == Part::Kind::Reduce) return s.sums != GpuState::Sums::Copied;
  return part.kind == Part::Kind::Gpu && (!part.crosses || s.pinned);
}

// What `queue_all` queues on `device`, as one graph.
template <class QueueAll>
Result<std::unique_ptr<GpuGraph>> capture(GpuDevice& device, QueueAll&& queue_all) {
  KTX_TRY(device.gpu->begin_capture());
  const Status queued = queue_all();
  auto graph = device.gpu->end_capture();  // also after a failure
  KTX_TRY(queued);
  return device.named(std::move(graph));
}

}  // namespace ktx::runtime
