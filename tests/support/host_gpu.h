// A fake Gpu: its memory is the host's and its steps run CPU kernels, so that placement,
// transfers, graphs, padding and errors can be tested without a GPU.
//
//   options.open_gpu = HostGpu::opener({.memory_bytes = 1 << 30}, &log);
//
// Steps run the exact CPU kernels over the same blobs (unpacked to rows), arena and cache as a
// GPU would, and only on rows that are not padding. Memory is initialised with NaN, and queued
// work is done at the latest moment allowed (copies to the host at wait() or finish()), so a
// forgotten wait reads NaN or old numbers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernel_id.h"
#include "kernels/matmul/marlin_blob.h"
#include "kernels/matmul/marlin_layout.h"
#include "kernels/matmul/retile.h"
#include "lib/formats/dtype.h"
#include "lib/formats/layout_size.h"
#include "lib/runtime/cpu/bind.h"
#include "lib/runtime/cpu/executor.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/support/thread_pool.h"
#include "lib/support/timer.h"

namespace ktx::testing {

using runtime::Gpu;
using runtime::GpuBindContext;
using runtime::GpuFacts;
using runtime::GpuGraph;
using runtime::GpuMark;
using runtime::GpuMemory;
using runtime::GpuShape;
using runtime::GpuStep;

// A plan whose GPU steps are steps of the CPU in exact precision, over weights in rows.
class HostPlan {
 public:
  explicit HostPlan(const GpuBindContext& context)
      : program_(*context.plan.program), view_(context.plan) {
    blobs_.assign(view_.blobs.begin(), view_.blobs.end());
    uint64_t bytes = 0;
    for (size_t i = 0; i < blobs_.size(); ++i) {
      program_.blobs[i].layout = Layout::Rows;
      blobs_[i].offset = bytes;
      blobs_[i].size = program::blob_bytes(program_.blobs[i]);
      bytes += (blobs_[i].size + 63) / 64 * 64;
    }
    file_.resize(bytes);
    for (program::Step& step : program_.steps) {
      const program::Blob* const weight = program_.weight(step, 0);
      const DType dtype = weight ? weight->dtype : DType::F32;
      const auto* const heads = std::get_if<MatmulHeadsAttrs>(&step.attrs);
      // The states of other devices are not among this one's.
      const bool elsewhere = kept_by(step.attrs).state >= 0 && step.device != context.step.device;
      step.device = elsewhere ? "other" : "cpu";
      step.kernels[0] = kernels::kernel_family(step.op, kernels::Precision::Exact, dtype,
                                               heads && heads->transposed != 0);
    }
    view_.program = &program_;
    view_.blobs = blobs_;
    view_.file = file_;
  }
  HostPlan(const HostPlan&) = delete;

  const plan::PlanView& view() const { return view_; }

  // Whether experts come to the step's weights and go (experts/expert_guests.h).
  bool changes(uint32_t number) const {
    const program::Step& step = program_.steps[number];
    const bool experts = step.op == StepOp::ExpertsGateUp || step.op == StepOp::ExpertsDown;
    for (const program::Step& group : program_.steps) {
      const auto* const attrs = std::get_if<GroupExpertsAttrs>(&group.attrs);
      if (!attrs || attrs->guests == 0) continue;
      if (&group == &step) return true;
      if (experts && step.inputs[2].value == group.outputs[0].value) return true;
    }
    return false;
  }

  // The weights of a step, from "device" memory; all of it must have been uploaded.
  void fetch(const GpuBindContext& context, uint32_t step) {
    for (const program::BlobId blob : program_.steps[step].weights) {
      const bool again = context.streamed || changes(step);
      if (blob == program::kAbsent || (fetched_[blob]++ && !again)) continue;
      unpack(context.plan.program->blobs[blob],
             context.layout_of(context.plan.program->blobs[blob]), context.blobs[blob],
             file_.data() + blobs_[blob].offset);
    }
  }

 private:
  static void unpack(const program::Blob& packed, Layout layout, const std::byte* from,
                     std::byte* to);

  program::Program program_;
  plan::PlanView view_;
  std::vector<plan::BlobRecord> blobs_;  // where they are in file_
  std::vector<std::byte> file_;
  std::map<program::BlobId, int> fetched_;
};

inline void HostPlan::unpack(const program::Blob& packed, Layout layout, const std::byte* from,
                             std::byte* to) {
  const uint64_t size = program::blob_bytes(packed, layout);
  if (layout == Layout::Rows) {
    std::memcpy(to, from, size);
    return;
  }
  const kernels::MarlinBlob blob{packed.dtype, packed.rows, packed.cols, packed.matrices};
  EXPECT_TRUE(kernels::unpack_marlin_range(blob, {from, size}, 0,
                                           {to, program::blob_bytes(packed, Layout::Rows)}));
}

// What happened, for tests to look at. Shared by the GPUs of a run.
struct HostGpuLog {
  int64_t launches = 0;  // of single steps
  int64_t graph_launches = 0;
  int64_t captured = 0;
  int64_t fused = 0;         // launches of several steps for one token
  int64_t fused_skinny = 0;  // for few tokens
  int64_t fused_many = 0;    // of MLA
  std::vector<std::vector<runtime::SequenceRun>>
      runs_of_sequences;  // of each launch of many tokens
  int64_t waits = 0;
  int64_t sums = 0;  // made by GPUs that add up
  int64_t sent = 0;  // by links
  int64_t retiles = 0;
  int64_t late_copies = 0;      // how often a copy beside the queue has not come yet
  bool refuses_copies = false;  // beside the queue
  bool refuses_tiles = false;
  // Allocated, and its bytes. GPUs may outlive the log.
  struct Memory {
    std::mutex mutex;  // hosts of a test are threads
    std::map<std::byte*, uint64_t> blocks;
  };
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  uint64_t uploaded_bytes = 0;
  uint64_t downloaded_bytes = 0;
};

struct HostGpuOptions {
  uint64_t memory_bytes = uint64_t{1} << 32;
  int compute_major = 9;
  uint32_t has = kernels::kNeedsCublas | kernels::kNeedsWgmma;
  // The step whose launch fails, counted from the first; -1: none does.
  int64_t fail_at_launch = -1;
  // The step whose first output gets an infinity in its first element.
  int64_t overflow_at_launch = -1;
  bool refuses_to_pin = false;  // any memory
  bool adds_up = false;         // with others of this process, without the host between
  bool reaches_others = false;  // their memory
  bool links = false;           // to others of this process
  bool refuses_links = false;   // when they are made
  std::string refused = {};     // what an allocation is for that finds no memory
  int64_t wrong_step = -1;      // of the plan, whose first output gets the other sign; -1: none
};

class HostGpuLink final : public runtime::GpuLink {
 public:
  HostGpuLink(const runtime::GpuLinkId& id, HostGpuLog* log) : way_(way_of(id)), log_(log) {}
  Status send(const std::byte* from, uint64_t bytes) override {
    const std::lock_guard lock(way_->mutex);
    EXPECT_TRUE(way_->sent.empty()) << "one message at a time";
    way_->sent.emplace_back(from, from + bytes);
    ++log_->sent;
    return {};
  }
  Status receive(std::byte* to, uint64_t bytes) override {
    to_ = to;
    bytes_ = bytes;
    return {};
  }
  // What is sent is over when it has been taken.
  Result<bool> done() override {
    const std::lock_guard lock(way_->mutex);
    if (log_ != nullptr) return way_->sent.empty();
    if (to_ == nullptr) return true;
    if (way_->sent.empty()) return false;
    EXPECT_EQ(way_->sent.front().size(), bytes_);
    std::memcpy(to_, way_->sent.front().data(), bytes_);
    way_->sent.pop_front();
    to_ = nullptr;
    return true;
  }

 private:
  struct Way {
    std::mutex mutex;
    std::deque<std::vector<std::byte>> sent;
  };
  static std::shared_ptr<Way> way_of(const runtime::GpuLinkId& id) {
    static std::mutex mutex;
    static std::map<std::array<std::byte, 128>, std::weak_ptr<Way>> all;
    const std::lock_guard lock(mutex);
    std::shared_ptr<Way> way = all[id.bytes].lock();
    if (way == nullptr) all[id.bytes] = way = std::make_shared<Way>();
    return way;
  }
  const std::shared_ptr<Way> way_;
  HostGpuLog* const log_;  // of the sender
  std::byte* to_ = nullptr;
  uint64_t bytes_ = 0;
};

class HostGpu final : public Gpu {
 public:
  HostGpu(int number, const HostGpuOptions& options, HostGpuLog* log)
      : options_(options), log_(log) {
    facts_ = {"host-gpu " + std::to_string(number),
              options.compute_major,
              0,
              options.memory_bytes,
              options.memory_bytes,
              0,
              options.has};
  }
  static runtime::OpenGpu opener(const HostGpuOptions& options, HostGpuLog* log) {
    return [=](int number) -> Result<std::unique_ptr<Gpu>> {
      return std::unique_ptr<Gpu>(std::make_unique<HostGpu>(number, options, log));
    };
  }

  const GpuFacts& facts() const override { return facts_; }
  Result<GpuMemory> allocate(uint64_t bytes, const char* what) override {
    if (bytes > options_.memory_bytes - used_ || what == options_.refused) {
      return Error{std::string(what) + ": out of memory"};
    }
    used_ += bytes;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
    std::memset(data, 0xFF, bytes);
    const std::lock_guard lock(memory_->mutex);
    memory_->blocks[data] = bytes;
    return GpuMemory(this, data, bytes);
  }
  uint64_t free_bytes() override { return options_.memory_bytes - used_; }
  Result<std::byte*> allocate_host(uint64_t bytes) override {
    if (options_.refuses_to_pin) return Error{"this memory cannot be pinned"};
    return static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  }
  void free_host(std::byte* data) override { std::free(data); }
  Status pin(std::byte* data, uint64_t bytes) override { return pin_read_only(data, bytes); }
  Status pin_read_only(const std::byte*, uint64_t) override {
    if (options_.refuses_to_pin) return Error{"this memory cannot be pinned"};
    return {};
  }
  void unpin(const std::byte*) override {}

  Status upload(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return queue([=, this] {
      std::memcpy(to, from, bytes);
      log_->uploaded_bytes += bytes;
      return Status{};
    });
  }
  Status upload_beside(std::byte* to, const std::byte* from, uint64_t bytes,
                       GpuMark done) override {
    if (log_->refuses_copies) return Error{"this copy is refused"};
    std::memcpy(to, from, bytes);
    const std::lock_guard lock(mutex_);
    log_->uploaded_bytes += bytes;
    asked_[done] = 0;
    marks_[done] = 0;
    return {};
  }
  Status download(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return queue([=, this] {
      std::memcpy(to, from, bytes);
      log_->downloaded_bytes += bytes;
      return Status{};
    });
  }
  Status copy(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return queue([=] {
      std::memcpy(to, from, bytes);
      return Status{};
    });
  }
  Status add(float* to, const float* from, int64_t rows, int64_t width) override {
    return queue([=] {
      for (int64_t i = 0; i < rows * width; ++i) to[i] += from[i];
      return Status{};
    });
  }
  Status copy_from(Gpu& other, std::byte* to, const std::byte* from, uint64_t bytes) override {
    KTX_TRY(static_cast<HostGpu&>(other).finish());
    KTX_TRY(finish());  // the sender may write its value again as soon as this returns
    std::memcpy(to, from, bytes);
    return {};
  }
  Result<bool> reaches(Gpu&) override { return options_.reaches_others; }
  Result<bool> join_team(std::span<Gpu* const> team, size_t, bool by_host) override {
    EXPECT_EQ(by_host, !options_.reaches_others);
    for (Gpu* const gpu : team) team_.push_back(static_cast<HostGpu*>(gpu));
    return options_.adds_up;
  }
  // When its turn comes the others are brought to theirs, as a kernel would wait for them: one
  // whose sum is not queued by then would be waited for in vain.
  Status sum(const runtime::GpuSum& sum) override {
    const std::vector<const float*> parts(sum.parts.begin(), sum.parts.end());
    return queue([=, this]() -> Status {
      ++sums_begun_;
      ++log_->sums;
      for (HostGpu* const other : team_) KTX_TRY(other->come_to(sums_begun_));
      for (int64_t i = 0; i < sum.rows * sum.width; ++i) {
        float y = sum.accumulate ? sum.y[i] : 0;
        for (const float* part : parts) y += part[i];
        sum.y[i] = y;
      }
      return {};
    });
  }
  Status clear(std::byte* data, uint64_t bytes) override {
    return queue([=] {
      if (bytes > 0) std::memset(data, 0, bytes);
      return Status{};
    });
  }

  Status copy_small(std::span<const runtime::GpuCopy> copies) override {
    EXPECT_LE(copies.size(), static_cast<size_t>(runtime::kMostCopies));
    EXPECT_FALSE(options_.refuses_to_pin) << "a kernel reaches pinned memory alone";
    for (const runtime::GpuCopy& copy : copies) {
      EXPECT_EQ(copy.bytes % 4, 0u);
      KTX_TRY(this->copy(copy.to, copy.from, copy.bytes));
    }
    return {};
  }
  Status check_links() override {
    if (options_.links) return {};
    return Error{"no links here"};
  }
  Result<runtime::GpuLinkId> new_link_id() override {
    static std::atomic<uint64_t> last = 0;
    runtime::GpuLinkId id;
    const uint64_t number = ++last;
    std::memcpy(id.bytes.data(), &number, sizeof(number));
    return id;
  }
  Result<std::unique_ptr<runtime::GpuLink>> link(const runtime::GpuLinkId& id, bool sends,
                                                 const std::function<bool()>&) override {
    if (options_.refuses_links) return Error{"this link is refused"};
    return std::unique_ptr<runtime::GpuLink>(
        std::make_unique<HostGpuLink>(id, sends ? log_ : nullptr));
  }
  Result<GpuMark> new_mark() override {
    marks_.push_back(0);
    return static_cast<GpuMark>(marks_.size()) - 1;
  }
  Status set(GpuMark mark) override {
    const std::lock_guard lock(mutex_);
    marks_[mark] = done_ + static_cast<int64_t>(work_.size());
    return {};
  }
  Status wait(GpuMark mark) override {
    const std::lock_guard lock(mutex_);
    ++log_->waits;
    return work_until(marks_[mark]);
  }
  Status finish() override {
    const std::lock_guard lock(mutex_);
    return work_until(done_ + static_cast<int64_t>(work_.size()));
  }

  Status stamp(int64_t number, runtime::GpuLane lane) override {
    if (stamps_.size() <= static_cast<size_t>(number)) stamps_.resize(number + 1);
    const auto note = [this, number] {
      stamps_[number] = timer_.seconds();
      return Status{};
    };
    return lane == runtime::GpuLane::Queue ? queue(note) : note();
  }
  Result<double> stamp_seconds(int64_t number) override { return stamps_[number] - stamps_[0]; }

  // Uploads beside the queue are seen log().late_copies questions later.
  Result<bool> passed(GpuMark mark) override {
    const std::lock_guard lock(mutex_);
    if (asked_[mark]++ < log_->late_copies) return false;
    return marks_[mark] <= done_;
  }
  Status queue_after(GpuMark) override { return {}; }  // uploads beside the queue happen at once
  Status uploads_after(GpuMark mark) override {
    const std::lock_guard lock(mutex_);
    return work_until(marks_[mark]);
  }
  Status retile(const runtime::GpuRetile& w) override {
    if (log_->refuses_tiles) return Error{"these tiles are refused"};
    ++log_->retiles;
    return queue([=] {
      const auto panel = static_cast<size_t>(*row_bytes(w.dtype, w.cols) * ktx::kPanelRows);
      const auto strip = static_cast<size_t>(kernels::marlin_strip_bytes(w.dtype, w.cols));
      for (size_t i = 0; i < static_cast<size_t>(w.strips); ++i) {
        kernels::retile_panel(w.dtype, w.from, w.cols, w.panels + i * panel, w.tiles + i * strip);
      }
      return Status{};
    });
  }

  Status begin_capture() override {
    capture_ = std::make_unique<Graph>();
    return {};
  }
  Result<std::unique_ptr<GpuGraph>> end_capture() override {
    ++log_->captured;
    return std::unique_ptr<GpuGraph>(std::move(capture_));
  }
  Status launch(GpuGraph& graph) override {
    ++log_->graph_launches;
    for (const Work& work : static_cast<Graph&>(graph).work) KTX_TRY(queue(work));
    return {};
  }

  // A fused op is the composition of its steps, at the place of the last.
  Result<std::unique_ptr<GpuStep>> make_launch(const GpuBindContext& context,
                                               std::span<GpuStep* const> members) override {
    if (!plan_) plan_ = std::make_unique<HostPlan>(context);
    const program::Launch& launch = context.launch;
    if (!launch.op) return std::unique_ptr<GpuStep>(std::make_unique<Step>(*this, context));
    EXPECT_EQ(members.size(), launch.steps.size());
    const bool latent = launch.op == FusedOp::Latent;
    ++(latent ? log_->fused_many : launch.least_tokens == 1 ? log_->fused : log_->fused_skinny);
    return std::unique_ptr<GpuStep>(
        std::make_unique<FusedStep>(members, latent ? &log_->runs_of_sequences : nullptr));
  }

  int64_t find_best_bytes(const runtime::GpuBestLogits& a) const override { return a.rows; }
  Status find_best(const runtime::GpuBestLogits& a) override {
    return queue([=, this] {
      std::memset(a.workspace, 0xFF, static_cast<size_t>(find_best_bytes(a)));
      for (int64_t r = 0; r < a.rows; ++r) find_best_of_row(a, r);
      return Status{};
    });
  }

 private:
  using Work = std::function<Status()>;
  struct Graph final : GpuGraph {
    std::vector<Work> work;
  };

  struct FusedStep final : GpuStep {
    explicit FusedStep(std::span<GpuStep* const> steps,
                       std::vector<std::vector<runtime::SequenceRun>>* runs = nullptr)
        : steps(steps.begin(), steps.end()), runs(runs) {}
    int64_t workspace_bytes(const GpuShape& shape) const override { return 64 * shape.tokens; }
    Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
      if (runs) runs->emplace_back(shape.runs.begin(), shape.runs.end());
      for (GpuStep* step : steps) KTX_TRY(step->launch(shape, workspace, bytes));
      return {};
    }
    std::vector<GpuStep*> steps;
    std::vector<std::vector<runtime::SequenceRun>>* runs;
  };

  class Step final : public GpuStep {
   public:
    Step(HostGpu& gpu, const GpuBindContext& context)
        : gpu_(gpu),
          context_(context),
          index_(static_cast<uint32_t>(&context.step - context.plan.program->steps.data())) {}
    int64_t workspace_bytes(const GpuShape& shape) const override { return 64 * shape.tokens; }
    Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
      if (bytes < 64 * shape.tokens) return Error{"the workspace is too small"};
      const int64_t number = gpu_.log_->launches++;
      if (number == gpu_.options_.fail_at_launch) return Error{"the GPU is lost"};
      return gpu_.queue([=, this] {
        std::memset(workspace, 0xFF, 64 * shape.tokens);  // it holds no other op's numbers
        const Status status = run(shape);
        if (number == gpu_.options_.overflow_at_launch) overflow();
        if (index_ == gpu_.options_.wrong_step) negate(shape);
        return status;
      });
    }

   private:
    Status run(const GpuShape& shape) {
      if (!executor_) KTX_TRY(bind());
      const bool changes = gpu_.plan_->changes(index_);
      if (context_.streamed || changes) gpu_.plan_->fetch(context_, index_);
      runtime::Batch batch;
      const runtime::GpuBatch& in = context_.batch;
      while (batch.tokens < shape.tokens && in.position[batch.tokens] >= 0) ++batch.tokens;
      while (batch.outputs < shape.outputs && in.output_rows[batch.outputs] >= 0) ++batch.outputs;
      batch.ids.assign(in.ids, in.ids + batch.tokens);
      batch.position.assign(in.position, in.position + batch.tokens);
      batch.text_end.assign(in.text_end, in.text_end + batch.tokens);
      batch.sequence.assign(in.sequence, in.sequence + batch.tokens);
      batch.output_rows.assign(in.output_rows, in.output_rows + batch.outputs);
      add_images(batch, shape);
      std::vector<runtime::KvTables> tables;
      const auto block = [&](runtime::SequenceKind kind, int32_t number) {
        return context_.kv_memory[kind] + number * context_.kv.of(kind).block_bytes();
      };
      for (int64_t t = 0; t < batch.tokens; ++t) {
        if (in.position[t] >= shape.max_positions) return Error{"a position above the bound"};
        tables.resize(std::max<size_t>(tables.size(), in.sequence[t] + 1));
        runtime::KvTables& table = tables[in.sequence[t]];
        const int64_t blocks = in.position[t] / runtime::KvCache::kBlockTokens + 1;
        for (auto b = static_cast<int64_t>(table.whole.size()); b < blocks; ++b) {
          const int64_t at = in.sequence[t] * in.table_stride + b;
          for (const runtime::SequenceKind kind : context_.kv.kinds()) {
            table[kind].push_back(block(kind, in.tables[kind][at]));
          }
        }
      }
      for (const runtime::KvTables& table : tables) {
        for (const runtime::SequenceKind kind : runtime::kBlockKinds) {
          batch.tables[kind].push_back(table[kind].data());
        }
      }
      add_states(batch);
      if (context_.streamed) batch.experts = runtime::Batch::Experts::OfGpu;
      batch.joint_tokens = shape.joint_tokens;
      KTX_TRY(executor_->run(batch));
      count_experts();
      return {};
    }
    void add_images(runtime::Batch& batch, const GpuShape& shape) const {
      const runtime::GpuBatch& in = context_.batch;
      batch.sees_ahead = shape.sees_ahead;
      if (in.given_row) batch.given_row.assign(in.given_row, in.given_row + batch.tokens);
      for (size_t axis = 0; in.axes[0] && axis < in.axes.size(); ++axis) {
        batch.axes[axis].assign(in.axes[axis], in.axes[axis] + batch.tokens);
      }
      if (in.grid) {
        batch.columns = in.grid[0];
        EXPECT_EQ(in.grid[1], batch.tokens / batch.columns);
      }
      if (in.given) batch.hidden.assign(in.given, in.given + batch.tokens * in.given_width);
    }
    void add_states(runtime::Batch& batch) const {
      const runtime::GpuBatch& in = context_.batch;
      if (in.texts == nullptr) return;
      const auto slot = [&](int32_t number) {
        return context_.states.slots + number * context_.states.layout.floats();
      };
      batch.states.resize(batch.tables.whole.size());
      int64_t text = 0;
      for (int64_t t = 0; t < batch.tokens; ++t) {
        if (t > 0 && batch.sequence[t] == batch.sequence[t - 1]) continue;
        runtime::SequenceState& state = batch.states[batch.sequence[t]];
        for (int32_t s = in.texts[text]; s < in.texts[text + 1]; ++s) {
          const kernels::StateSegment& segment = in.segments[s];
          if (s == in.texts[text] && segment.in >= 0) state.in = slot(segment.in);
          const int64_t behind = segment.first + segment.tokens - t;
          state.outs.push_back({behind, segment.out, slot(segment.out), false});
        }
        ++text;
      }
    }
    std::byte* place(program::ValueId value) const {
      return context_.arena + context_.buffer_offsets[context_.plan.program->values[value].buffer];
    }
    void count_experts() {
      if (!context_.expert_counts) return;
      const auto* const offsets =
          reinterpret_cast<const int32_t*>(place(context_.step.outputs[1].value));
      const int32_t experts = std::get<GroupExpertsAttrs>(context_.step.attrs).experts;
      for (int32_t e = 0; e < experts; ++e) {
        context_.expert_counts[e] += static_cast<uint64_t>(offsets[e + 1] - offsets[e]);
      }
    }
    void negate(const GpuShape& shape) {
      const program::View& y = context_.step.outputs[0];
      const program::Value& value = context_.plan.program->values[y.value];
      auto* row = reinterpret_cast<float*>(place(y.value));
      const int64_t rows = shape.rows(value.rows) * value.rows_per_row;
      for (int64_t r = 0; r < rows; ++r, row += value.width) {
        for (int64_t i = 0; i < y.width; ++i) row[y.offset + i] *= -1;
      }
    }
    void overflow() {
      const program::View& y = context_.step.outputs[0];
      reinterpret_cast<float*>(place(y.value))[y.offset] = INFINITY;
    }
    Status bind() {
      gpu_.plan_->fetch(context_, index_);
      runtime::BoundPlan bound = KTX_TRY(runtime::bind(gpu_.plan_->view(), context_.kv,
                                                       {.arena = context_.arena,
                                                        .buffer_offsets = context_.buffer_offsets,
                                                        .isa = detect_isa(),
                                                        .precision = kernels::Precision::Exact,
                                                        .threads = 1,
                                                        .first_step = index_,
                                                        .step_count = 1}));
      executor_ = std::make_unique<runtime::Executor>(
          KTX_TRY(runtime::Executor::create(std::move(bound), gpu_.pool_)));
      return {};
    }

    HostGpu& gpu_;
    GpuBindContext context_;
    uint32_t index_;
    std::unique_ptr<runtime::Executor> executor_;
  };

  Status queue(Work work) {
    if (capture_) {
      capture_->work.push_back(std::move(work));
      return {};
    }
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    return {};
  }
  static void find_best_of_row(const runtime::GpuBestLogits& a, int64_t r) {
    std::vector<runtime::TokenLogit> tokens;
    double sum = 0;
    for (int32_t id = 0; id < a.vocabulary; ++id) {
      const float logit = a.logits[r * a.stride + id];
      if (!(logit < INFINITY)) sum = NAN;
      const runtime::TokenBits allowed(a.allowed + r * a.allowed_words,
                                       static_cast<size_t>(a.allowed_words));
      if (logit > -INFINITY && (a.allowed == nullptr || runtime::has_token(allowed, id))) {
        tokens.push_back({logit, id});
      }
      sum += std::exp(double{logit});
    }
    a.log_sum[r] = std::log(sum);
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const auto& x, const auto& y) { return x.logit > y.logit; });
    tokens.resize(static_cast<size_t>(a.count));
    std::copy(tokens.begin(), tokens.end(), a.best + r * a.count);
  }
  Status work_until(int64_t end) {
    while (done_ < end) KTX_TRY(work_once());
    return {};
  }
  Status work_once() {
    KTX_TRY(work_.front()());
    work_.pop_front();
    ++done_;
    return {};
  }
  Status come_to(int64_t sum) {
    if (sums_begun_ >= sum) return {};
    const std::lock_guard lock(mutex_);
    while (sums_begun_ < sum) {
      if (work_.empty()) return Error{facts_.name + " does not come to a sum"};
      KTX_TRY(work_once());
    }
    return {};
  }
  void free(std::byte* data) override {
    {
      const std::lock_guard lock(memory_->mutex);
      memory_->blocks.erase(data);
    }
    std::free(data);
  }

  HostGpuOptions options_;
  HostGpuLog* log_;
  std::shared_ptr<HostGpuLog::Memory> memory_ = log_->memory;
  GpuFacts facts_;
  uint64_t used_ = 0;
  std::mutex mutex_;
  std::deque<Work> work_;
  int64_t done_ = 0;  // pieces of work so far
  std::vector<HostGpu*> team_;
  int64_t sums_begun_ = 0;
  std::vector<int64_t> marks_;
  std::map<GpuMark, int64_t> asked_;
  std::vector<double> stamps_;
  Timer timer_;
  std::unique_ptr<Graph> capture_;
  std::unique_ptr<HostPlan> plan_;
  ThreadPool pool_{1};
};

}  // namespace ktx::testing
