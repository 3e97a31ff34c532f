// The GPUs of a plan: devices with their memory, graphs, the pass at hand. Data only; each
// operation on it has its own file:
//
//   gpu_start.h      fills it: opens, allocates, binds, uploads
//   bound_launches.h the launches of the plan, and which one a pass takes
//   gpu_graphs.h     captures the steps of one token per sequence
//   skinny_graphs.h  those of a few tokens of one sequence, as they are met
//   gpu_queue.h      queues a part: its steps, and copies between devices
//   guest_copies.h   brings experts into slots between passes
//   gpu_sums.h       sums over several devices
//   watched_steps.h  runs a part step by step, for times and results
//   kernel_times.h   times some steps as they run inside a graph
//   gpu_backend.cc   a pass: inputs, parts, logits
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/plan/device_memory.h"
#include "lib/program/joint_experts.h"
#include "lib/runtime/engine/arena.h"
#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"
#include "lib/runtime/gpu/bound_launches.h"
#include "lib/runtime/gpu/expert_streams.h"
#include "lib/runtime/gpu/gpu_batch.h"
#include "lib/runtime/gpu/gpu_buckets.h"
#include "lib/runtime/gpu/gpu_logits.h"
#include "lib/runtime/gpu/gpu_trace.h"
#include "lib/runtime/gpu/guest_copies.h"
#include "lib/runtime/gpu/host_buffer.h"
#include "lib/runtime/gpu/skinny_graphs.h"
#include "lib/runtime/gpu/weight_upload.h"

namespace ktx::runtime {

// A GPU with all that it holds. Members are freed from the last to the first.
struct GpuDevice {
  std::string name;  // "cuda:0"
  std::unique_ptr<Gpu> gpu;
  GpuMemory weights, arena, batch, workspace;
  ByBlockKind<GpuMemory> kv;
  GpuMemory expert_counts;  // as ExpertCounts; empty: nothing is counted by expert
  GpuMemory states;         // as many slots as the pool has (cache/state_pool.h)
  plan::StateLayout state_layout;
  std::vector<plan::StatePart> state_parts;
  KvPools slots;               // the arrangement only
  std::vector<bool> has_slot;  // by slot of the plan
  // A block of each pool of the cache, while the host looks at it.
  ByBlockKind<std::vector<std::byte>> block_copy;
  plan::ArenaLayout layout;
  WeightImage image;
  std::vector<std::byte*> blobs;
  std::unique_ptr<ExpertStreams> streams;  // null: none
  std::unique_ptr<GuestCopies> guests;     // null: none
  BoundLaunches launches;
  GpuBatch inputs;
  std::unique_ptr<GpuTrace> trace;  // null: none
  HostBuffer reads;                 // copies of values that are asked for, and its size
  uint64_t read_bytes = 0;

  std::byte* room_for_reads(uint64_t bytes) {
    if (bytes > read_bytes) {
      reads = {};  // its memory goes before the new one is there
      reads = HostBuffer(*gpu, bytes);
      read_bytes = bytes;
    }
    return reads.data();
  }

  // work(), with a span of the queue where there is a trace.
  template <class Work>
  Status traced(const TraceSpan& span, const Work& work) {
    if (!trace) return work();
    KTX_TRY(trace->begin(GpuLane::Queue));
    KTX_TRY(work());
    return trace->end(GpuLane::Queue, span);
  }

  KvBlock first_blocks() const {
    KvBlock blocks;
    for (const SequenceKind kind : kBlockKinds) blocks[kind] = kv[kind].data();
    return blocks;
  }
  GpuStates states_of_texts() const {
    return {reinterpret_cast<float*>(states.data()), state_layout};
  }

  // `result`, with this device's name before the message of a failure.
  template <class T>
  Result<T> named(Result<T> result) const {
    if (!result) return Error{name + ": " + result.error().message};
    return result;
  }
};

// Host memory registered with a GPU, released at the end.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() {
    if (data_) gpu_->unpin(data_);
  }
  Status pin(Gpu& gpu, std::byte* data, uint64_t bytes);
  Status pin_read_only(Gpu& gpu, const std::byte* data, uint64_t bytes);

 private:
  Gpu* gpu_ = nullptr;
  const std::byte* data_ = nullptr;
};

struct GpuState {
  GpuState(const BackendSetup& setup, const BoundParts& parts, const HostArena& host)
      : plan(setup.plan),
        program(*setup.plan.program),
        kv(setup.kv),
        pool(setup.pool),
        setup(setup),
        parts(parts),
        host(host) {}
  ~GpuState();  // after all that is in flight
  GpuState(const GpuState&) = delete;
  GpuState& operator=(const GpuState&) = delete;

  // Whether fused ops take the place of their steps in a pass of this shape: not where each
  // one's result is looked at, nor of one token without wanted logits.
  bool fuses(const GpuShape& shape) const {
    return !looks_at_results() && (shape.tokens > 1 || (shape.tokens == 1 && shape.outputs == 1));
  }
  bool looks_at_results() const { return setup.check_finite || setup.on_result; }
  bool steps_are_watched() const { return looks_at_results() || !times.empty(); }

  // "cuda:0: step 12 (matmul of model.layers.0.mlp.up_proj): ..."
  Error in_step(uint32_t index, const std::string& device, const Error& error) const;

  // Whether a pass of so many tokens streams experts: not where results are looked at.
  bool streams(int64_t tokens) const {
    return stream_tokens > 0 && tokens >= stream_tokens && !looks_at_results();
  }

  // Whether the CPU computes some of the streamed experts in the pass at hand.
  bool joins() const { return streaming && program::is_joint(shape.tokens, shape.joint_tokens); }

  // Whether a value of the CPU lies on a GPU in the pass at hand (boundary_values.h).
  bool has_boundary(uint32_t value) const { return linked && boundary_places.contains(value); }
  // Where a value lies on a GPU (device >= 0) or on the CPU.
  std::byte* place(int device, uint32_t value) const;

  const plan::PlanView& plan;
  const program::Program& program;
  KvPools& kv;
  ThreadPool& pool;
  BackendSetup setup;
  const BoundParts& parts;
  const HostArena& host;
  std::vector<uint32_t> steps;  // of all parts here, rising
  GpuBuckets buckets;
  GpuBatchLayout batch_layout;
  Arena host_batch;
  bool inputs_sent = false;  // from there, and not awaited yet
  std::vector<GpuDevice> devices;
  std::optional<GpuLogits> logits;
  std::vector<std::unique_ptr<PinnedMemory>> pins;
  bool pinned =
      true;  // the host's values; else kernels cannot reach them, and no graph copies them
  // How GPUs add up what all of them have (gpu_sums.h): by copies, or by kernels over the host's
  // memory or each other's.
  enum class Sums { Copied, Host, Peers } sums = Sums::Copied;
  std::vector<int> gpu_of_buffer;                // of a plan with such sums
  std::vector<size_t> rank_of_gpu;               // of those that add up: their number among these
  std::vector<GpuMark> marks;                    // by part
  std::map<uint32_t, GpuPlace> boundary_places;  // by value; empty: no links
  bool linked = false;                           // the pass at hand has those
  std::vector<GpuMemory> boundary_memory;
  std::vector<std::vector<std::unique_ptr<GpuGraph>>> graphs;  // by bucket, part
  std::vector<size_t> run_of_part;    // by part: the first one of those that graphs hold together
  std::vector<size_t> graph_of_part;  // by part: that whose graph of a bucket has it, too
  std::vector<std::string> notes;     // of the start
  int64_t stream_tokens = 0;          // of a pass that streams experts; 0: none does
  int64_t joint_tokens = 0;    // of a streaming pass; 0: GPUs compute all streamed experts of it
  bool room_to_stream = true;  // on all GPUs
  plan::StreamSlots stream_slots = plan::StreamSlots::Layer;
  std::vector<std::optional<Part>> taken;  // by part of the CPU: as that of a GPU which streams it
  std::vector<StepTotals> times;           // by step; empty: off
  // The last pass: its sequences, its shape, and the bucket whose graphs it launched; else -1.
  std::vector<SequenceRun> runs;
  GpuShape shape;
  int bucket = -1;
  SkinnyGraphs skinny_graphs;
  SkinnyGraphs::Graphs* skinny = nullptr;  // of the last pass; null: it is none of a few tokens
  bool streaming = false;
};

}  // namespace ktx::runtime
