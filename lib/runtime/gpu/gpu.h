// The runtime's interface to one GPU: memory, copies, a queue of work, and its steps.
//
//   auto gpu = KTX_TRY(open_gpu(0));
//   GpuMemory arena = KTX_TRY(gpu->allocate(bytes, "activations"));
//   gpu->upload(arena.data(), host, n);  step->launch(shape);  gpu->download(host, ...);
//   gpu->finish();
//
// All copies and launches are queued in order and return at once; wait() and finish()
// are where the host waits. The CUDA implementation is lib/runtime/cuda/; tests have one
// that keeps "device" memory on the host and runs CPU kernels, so that everything above
// this line is tested where there is no GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/delta_net/state_segment.h"
#include "lib/formats/dtype.h"
#include "lib/formats/layout_size.h"
#include "lib/ops/step_ops.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/state_layout.h"
#include "lib/program/program.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/gpu/gpu_link.h"
#include "lib/runtime/sampling/best_logits.h"
#include "lib/support/result.h"

namespace ktx::runtime {

class Gpu;

// Memory of a GPU. Frees itself; the Gpu must live longer.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(Gpu* gpu, std::byte* data, uint64_t bytes) : gpu_(gpu), data_(data), bytes_(bytes) {}
  GpuMemory(GpuMemory&& other) noexcept
      : gpu_(std::exchange(other.gpu_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~GpuMemory();

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  Gpu* gpu_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

struct GpuFacts {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;    // when it was opened
  double bandwidth_gbps = 0;  // of its memory, as rated; 0: not known
  uint32_t has = 0;           // of kernels::KernelNeed, what this machine and program have
};

// The part of a step's inputs that changes from pass to pass, in device memory at fixed
// addresses (gpu_batch.h).
struct GpuBatch {
  const int32_t* ids = nullptr;          // [T]
  const int32_t* position = nullptr;     // [T], -1: padding
  const int32_t* sequence = nullptr;     // [T]
  const int32_t* text_end = nullptr;     // [T] the last position of its sequence in the pass
  const int32_t* output_rows = nullptr;  // [R], -1: padding
  ByBlockKind<const int32_t*> tables;    // [sequences, table_stride] block numbers
  int64_t table_stride = 0;
  // For models with states of a fixed size: segments [texts[i], texts[i + 1]) belong to text i of
  // the pass, in the order of the texts' rows; numbers behind the last text have no segments.
  const int32_t* texts = nullptr;  // [most_texts + 1]
  const kernels::StateSegment* segments = nullptr;
  int64_t most_texts = 0;
  // For plans that take images, and towers: what comes with the tokens (batch.h); null otherwise.
  const int32_t* given_row = nullptr;                // [T], -1: none; padding has none, either
  std::array<const int32_t*, kTokenAxes> axes = {};  // [T] each
  const int32_t* grid = nullptr;                     // [2] of a tower: columns and lines
  const float* given = nullptr;                      // [T, given_width]
  int64_t given_width = 0;
};

// The states of texts in a device's memory: slots of them, of equal size (cache/state_pool.h).
struct GpuStates {
  float* slots = nullptr;    // that of slot 0
  plan::StateLayout layout;  // of a slot
};

// The shape of one pass: what a captured graph fixes.
struct GpuShape {
  int64_t tokens = 0;           // rows of values with one per token, padding included
  int64_t outputs = 0;          // rows of values with one per wanted logits row
  int64_t max_positions = 0;    // no position of the pass is as large
  bool one_token_each = false;  // no two tokens are of one sequence
  int64_t joint_tokens = 0;     // of streamed experts (lib/program/joint_experts.h)
  // All tokens, where they are known: not for graphs, nor when a step says what it needs.
  std::span<const SequenceRun> runs = {};
  bool images = false;      // some tokens are of images: what is fused for texts does not serve
  bool sees_ahead = false;  // and these see those behind them (Batch::sees_ahead)

  int64_t rows(RowKind kind) const {
    return kind == RowKind::Token ? tokens : kind == RowKind::Output ? outputs : 1;
  }
};

class GpuStep {
 public:
  virtual ~GpuStep() = default;
  // Bytes that launch() needs of the shared workspace, for this shape and for any with
  // fewer rows and the same positions.
  virtual int64_t workspace_bytes(const GpuShape&) const { return 0; }
  // Queues the step.
  virtual Status launch(const GpuShape& shape, std::byte* workspace, int64_t workspace_bytes) = 0;
};

// What binding a step may look at. All pointers are to this GPU's memory.
struct GpuBindContext {
  const plan::PlanView& plan;
  const program::Step& step;
  std::byte* arena = nullptr;
  std::span<const uint64_t> buffer_offsets;
  std::span<std::byte* const> blobs;  // by blob; null where it is elsewhere
  const KvPools& kv;                  // the arrangement of this GPU's slots
  KvBlock kv_memory;                  // block 0 of each pool
  GpuStates states;
  GpuBatch batch;
  const program::Launch& launch;  // what the step is bound for; its last step is `step`
  // A step of the CPU that streams: the weights of its products are tiles here, and they are
  // others at each launch.
  bool streamed = false;
  // For a group_experts step: the counters of its experts, to which each launch adds; null: none.
  uint64_t* expert_counts = nullptr;

  // How a weight lies in `blobs`.
  Layout layout_of(const program::Blob& blob) const {
    return streamed && in_panels(blob.layout) ? Layout::Marlin : blob.layout;
  }
};

// The best logits of some rows, in device memory.
struct GpuBestLogits {
  const float* logits = nullptr;  // [rows, vocabulary]
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t vocabulary = 0;
  int32_t count = 1;  // of each row, at most kMostBestLogits
  // [rows, allowed_words], a bit for each token that may be among them; null: all may.
  const uint32_t* allowed = nullptr;
  int64_t allowed_words = 0;
  TokenLogit* best = nullptr;  // [rows, count], id -1 behind the last
  double* log_sum = nullptr;   // [rows]
  std::byte* workspace = nullptr;
};

// Panels in its memory that become tiles there (kernels/matmul/retile.h).
struct GpuRetile {
  DType dtype = DType::F32;
  Layout from = Layout::Panel16;
  int64_t cols = 0;
  int64_t strips = 0;
  const std::byte* panels = nullptr;
  std::byte* tiles = nullptr;
};

// One GPU's share of a sum over several (all_reduce): rows of floats, one behind the other.
struct GpuSum {
  float* y = nullptr;
  bool accumulate = false;              // y +=, else y =
  std::span<const float* const> parts;  // in the order in which they are added
  std::span<const size_t> ranks;        // of the GPUs that have them
  int64_t rows = 0;
  int64_t width = 0;
};

struct GpuCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};
inline constexpr int kMostCopies = 8;

using GpuMark = int64_t;               // a place in the queue
enum class GpuLane { Queue, Copies };  // Copies: uploads beside the queue

class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
};

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual const GpuFacts& facts() const = 0;

  // `what` is for the message: "KV cache: cuda:0 has no 3.2 GiB left: out of memory".
  virtual Result<GpuMemory> allocate(uint64_t bytes, const char* what) = 0;
  // Free now; 0 when the GPU does not say.
  virtual uint64_t free_bytes() = 0;
  // Host memory that copies can read and write at full speed, page-aligned.
  virtual Result<std::byte*> allocate_host(uint64_t bytes) = 0;
  virtual void free_host(std::byte* data) = 0;
  // Makes existing host memory such; until unpin().
  virtual Status pin(std::byte* data, uint64_t bytes) = 0;
  // The same of memory that is only read, as a mapped file.
  virtual Status pin_read_only(const std::byte* data, uint64_t bytes) = 0;
  virtual void unpin(const std::byte* data) = 0;

  virtual Status upload(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  // Beside the queue, for weights; `done` is set behind it. From any thread, also
  // while the queue is being captured; nothing of the queue may need it before wait(done).
  virtual Status upload_beside(std::byte* to, const std::byte* from, uint64_t bytes,
                               GpuMark done) = 0;
  virtual Status download(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual Status copy(std::byte* to, const std::byte* from, uint64_t bytes) = 0;  // within
  // From another GPU, after what that one has queued and before what it queues next.
  virtual Status copy_from(Gpu& other, std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual Status clear(std::byte* data, uint64_t bytes) = 0;  // to zero
  // to += from, rows of floats one behind the other; both aligned to 16 bytes.
  virtual Status add(float* to, const float* from, int64_t rows, int64_t width) = 0;
  // Whether its kernels can read and write the other's memory.
  virtual Result<bool> reaches(Gpu& /*other*/) { return false; }
  // Lets the kernels of these GPUs, this one among them, wait for each other and add up what they
  // have: `rank` is its number. They read each other's memory or, `by_host`, write to that of the
  // host. False: they cannot, and sums are copied (gpu_sums.h).
  virtual Result<bool> join_team(std::span<Gpu* const> /*team*/, size_t /*rank*/,
                                 bool /*by_host*/) {
    return false;
  }
  // Queues this GPU's share of a sum of its team. All of the team queue the same sums in the same
  // order; each waits on the GPU until all have come to it. It may be captured.
  virtual Status sum(const GpuSum&) { return Error{"this GPU has no team"}; }
  // Between its memory and pinned memory of the host, by a kernel, in one launch: a third of
  // the time of as many copies where the values are small. Addresses and sizes are multiples
  // of 4, at most kMostCopies.
  virtual Status copy_small(std::span<const GpuCopy> copies) = 0;

  // A mark behind what is queued now; marks are few, and used again and again.
  virtual Result<GpuMark> new_mark() = 0;
  virtual Status set(GpuMark mark) = 0;
  virtual Status wait(GpuMark mark) = 0;          // the host waits
  virtual Result<bool> passed(GpuMark mark) = 0;  // whether it would not have to
  // What is queued next waits for the mark of an upload beside the queue, or the other way round.
  virtual Status queue_after(GpuMark mark) = 0;
  virtual Status uploads_after(GpuMark mark) = 0;
  virtual Status finish() = 0;  // the host waits for all

  // Notes the time behind what a lane has queued, as number `number` (0, 1, 2 ...; used again and
  // again). After finish() its seconds since number 0 can be read.
  virtual Status stamp(int64_t number, GpuLane lane) = 0;
  virtual Result<double> stamp_seconds(int64_t number) = 0;

  virtual Status retile(const GpuRetile& weights) = 0;

  // Makes cuBLAS ready. It may run beside uploads and captures.
  virtual Status start_cublas() { return {}; }

  // Records what is queued between the two calls instead of running it.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<GpuGraph>> end_capture() = 0;
  virtual Status launch(GpuGraph& graph) = 0;

  // Links to GPUs of other processes (gpu_link.h), where there is what makes them. link() waits for
  // the other end until `gives_up` says so.
  virtual Status check_links() { return Error{"this GPU has no links to other processes"}; }
  virtual Result<GpuLinkId> new_link_id() { return Error{"this GPU has no links"}; }
  virtual Result<std::unique_ptr<GpuLink>> link(const GpuLinkId& /*id*/, bool /*sends*/,
                                                const std::function<bool()>& /*gives_up*/) {
    return Error{"this GPU has no links"};
  }

  // A launch of the plan, bound. `members`: of a fused op, its steps by themselves, which live on.
  // Fails where this GPU cannot take it.
  virtual Result<std::unique_ptr<GpuStep>> make_launch(const GpuBindContext& context,
                                                       std::span<GpuStep* const> members) = 0;

  // Queues the search for the best logits, and what it needs of workspace.
  virtual Status find_best(const GpuBestLogits& args) = 0;
  virtual int64_t find_best_bytes(const GpuBestLogits& args) const = 0;

 private:
  friend class GpuMemory;
  virtual void free(std::byte* data) = 0;
};

inline GpuMemory::~GpuMemory() {
  if (data_) gpu_->free(data_);
}

// "cuda:3" -> 3; -1 for anything else.
int gpu_number(std::string_view device);

// The GPU number `number` of this machine, ready to use. Fails with what is missing
// (program built without CUDA, no driver, too old a driver or card) and what to do.
Result<std::unique_ptr<Gpu>> open_gpu(int number);
using OpenGpu = std::function<Result<std::unique_ptr<Gpu>>(int number)>;

}  // namespace ktx::runtime
