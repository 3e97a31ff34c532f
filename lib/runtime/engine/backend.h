// What runs parts of a plan: the CPU (cpu/cpu_backend.h), the GPUs of this machine
// (gpu/gpu_backend.h), or the other hosts of a run (hosts/host_backend.h). PlanRunner walks the
// parts and calls them, for example for
//
//   part 0  cuda:0  attention, router        gpus.begin(batch)   the inputs are on their way
//   part 1  cpu     routed experts           gpus.run(0)         queued
//   part 2  cuda:0  the next layer ...       gpus.wait(0)        what part 1 reads is there
//                                            cpu.run(1)          computed
//                                            gpus.run(2)
//                                            gpus.send_logits()
//                                            gpus.finish()       everything is computed
//
// The defaults are those of a backend that computes within run() and has its values in host
// memory. What differs between GPUs, CUDA and the tests' one in host memory, is a level below:
// gpu/gpu.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/cache/state_pool.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/engine/expert_counts.h"
#include "lib/runtime/engine/forward_trace.h"
#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/step_stats.h"
#include "lib/runtime/sampling/best_logits.h"
#include "lib/support/result.h"
#include "lib/support/thread_pool.h"
#include "lib/target/isa.h"

namespace ktx::runtime {

class ExpertCache;
class ExpertGuests;
class HostGroup;
class LoraWeights;
class Backend;
class Gpu;

// What backends are created from. The references must outlive them.
struct BackendSetup {
  const plan::PlanView& plan;  // of a PlanFile
  // Has the CPU's slots in memory and numbers the blocks of all devices.
  KvPools& kv;
  ThreadPool& pool;
  plan::RunShape shape;
  plan::KvBlocks kv_blocks;
  Isa isa = Isa::Scalar;
  kernels::Precision precision = kernels::Precision::Fast;
  std::function<Result<std::unique_ptr<Gpu>>(int)> open_gpu;  // empty: this machine's
  bool gpu_graphs = true;  // false: every step is launched by itself
  // Inspect every result of every step on a GPU: slow.
  bool check_finite = false;
  bool count_experts = false;  // by expert
  ExpertCounts* expert_counts = nullptr;
  ExpertCache* experts = nullptr;     // null: the CPU's are in the mapping
  ExpertGuests* guests = nullptr;     // on GPUs; null: experts stay where the plan has them
  const LoraWeights* lora = nullptr;  // adapters; null: none
  std::function<void(const StepResult&)> on_result;
  std::function<void(const StepRepeat&)> on_repeat = {};
  CpuOpTable cpu_op = nullptr;  // null: those of cpu_ops.def
  HostGroup* hosts = nullptr;   // of a plan with several; this one's rank is PlanView::host
  GpuLinks gpu_links = GpuLinks::Off;
  Backend* gpus = nullptr;  // of this host, for its boundaries with others; null: none
};

// The first floats of a value from a row on.
struct ValueRead {
  std::string_view device;  // "cpu", "cuda:0"
  uint32_t value = 0;
  int64_t row = 0;
  std::span<float> out;
};

// Where a value of the CPU is in a GPU's memory (gpu/boundary_values.h).
struct GpuPlace {
  Gpu* gpu = nullptr;  // null: nowhere
  std::byte* data = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // A pass: begin(), run() of its own parts in their order, send_logits(), finish(). `batch` stays
  // unchanged until then. Fails on damaged data and when a device fails (lost, out of memory);
  // the message says which and what to do.
  virtual Status begin(const Batch&) { return {}; }
  // Goes on with a pass after others have begun (PlanRunner::most_forwards).
  virtual Status resume(const Batch&) { return {}; }
  // Computes or queues a part (its index in BoundParts). False: `watch` (may be null) ended it,
  // and its results are undefined. The watch's progress is the part's own, from 0 to 1.
  virtual Result<bool> run(size_t part, const Batch& batch, const ForwardWatch* watch) = 0;
  // Whether this backend computes a part of the CPU in this pass (lib/program/streams.h).
  virtual bool takes(size_t /*part*/) const { return false; }
  // Above 0 the CPU computes some experts of the parts that this backend takes (joint_experts.h).
  virtual int64_t joint_tokens() const { return 0; }
  // Whether a pass may end in front of a part: false between the queued shares of one sum, as one
  // GPU's would wait for another's that is not queued.
  virtual bool may_stop(size_t /*part*/) const { return true; }
  // Waits until part `part`, named in a Part::waits_for, is computed.
  virtual Status wait(size_t /*part*/) { return {}; }
  // Waits until everything is computed that was queued.
  virtual Status finish() { return {}; }
  // Before finish(): `watch` has ended the pass, and parts are left out from here on.
  virtual void stop() {}
  // Instead of finish(), after a failure of this pass, here or elsewhere.
  virtual void abandon() {}

  // Whether logits are computed here and remain here unless all of a row's are wanted
  // (Batch::best). Otherwise all are in host memory when the pass is over.
  virtual bool keeps_logits() const { return false; }
  // Queues the copies of what the batch's rows want.
  virtual Status send_logits(const Batch&) { return {}; }
  virtual BestLogits best(int64_t /*row*/, int32_t /*count*/) const { return {}; }
  // Copies a whole row to host memory, after the pass.
  virtual Status fetch_logits(int64_t /*row*/) { return {}; }

  // Where a value of the CPU is in passes that use links.
  virtual GpuPlace boundary_place(uint32_t /*value*/) const { return {}; }
  virtual void leave_boundaries() {}  // there are no links: all is in host memory

  // Values as the last pass left them on this backend's devices.
  virtual Status read(std::span<const ValueRead> reads) = 0;

  // Makes slots[i] point to this backend's slot i of a block of the KV cache, in host memory, for
  // its own slots in pools where the block is. unmap_block() ends that; with `write` the cache gets
  // what is there now.
  virtual Status map_block(const KvBlock& block, bool write, std::span<std::byte*> slots) = 0;
  virtual Status unmap_block(const KvBlock& /*block*/, bool /*write*/) { return {}; }

  // Copies this backend's states of a slot (cache/state_pool.h) to their places among those of all
  // devices, or from there.
  virtual Status copy_states(StateSlot slot, bool write, std::span<std::byte> all) = 0;

  // Whether the weight is in this backend's own memory, and bytes of it from there, as kernels read
  // them.
  virtual bool has_weight(uint32_t /*blob*/) const { return false; }
  virtual Status read_weight(uint32_t /*blob*/, uint64_t /*offset*/, std::span<std::byte> /*out*/) {
    return {};
  }

  virtual int64_t weight_bytes() const = 0;  // read by run() so far
  // Adds what it has counted by expert in its own memory, between two passes.
  virtual Status add_expert_counts(std::span<uint64_t> /*counts*/) { return {}; }
  virtual void enable_times(bool on) = 0;
  // Appends one for each step; none while times are off.
  virtual void add_times(std::vector<StepTotals>& out) const = 0;

  // From the next pass on; null ends it. The lanes are added at once.
  virtual void set_trace(ForwardTrace* trace) = 0;

  // Things that happened at the start: "cuda:0 NVIDIA H200: 16.9 GiB uploaded in 0.4 s ...".
  virtual std::vector<std::string> notes() const { return {}; }
  virtual std::vector<GpuUse> gpus() const { return {}; }
  // PlanRunner::time_steps and PlanRunner::steps_of_launch; `part` has the first step.
  virtual Result<KernelTime> time_steps(size_t part, std::span<const uint32_t> steps);
  virtual std::vector<uint32_t> steps_of_launch(uint32_t step) const { return {step}; }
};

}  // namespace ktx::runtime
