#include "lib/runtime/gpu/gpu_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "lib/runtime/gpu/boundary_values.h"
#include "lib/runtime/gpu/gpu_graphs.h"
#include "lib/runtime/gpu/gpu_queue.h"
#include "lib/runtime/gpu/gpu_start.h"
#include "lib/runtime/gpu/gpu_state.h"
#include "lib/runtime/gpu/kernel_times.h"
#include "lib/runtime/gpu/step_bytes.h"
#include "lib/runtime/gpu/watched_steps.h"

namespace ktx::runtime {
namespace {

bool has_images(const Batch& batch) {
  return !batch.given_row.empty() &&
         std::any_of(batch.given_row.begin(), batch.given_row.begin() + batch.tokens,
                     [](int32_t row) { return row >= 0; });
}

// The shape of the pass, and its bucket where graphs are launched for it; else -1.
void choose_shape(GpuState& s, const Batch& batch) {
  GpuShape shape{batch.tokens, batch.outputs, 0, true};
  shape.images = has_images(batch);
  shape.sees_ahead = batch.sees_ahead;
  s.runs.clear();
  for (int64_t t = 0; t < batch.tokens; ++t) {
    shape.max_positions = std::max<int64_t>(shape.max_positions, batch.position[t] + 1);
    if (t == 0 || batch.sequence[t] != batch.sequence[t - 1]) s.runs.push_back({t, 0, 0});
    s.runs.back().positions = batch.position[t] + 1;
    if (++s.runs.back().tokens > 1) shape.one_token_each = false;
  }
  s.bucket = -1;
  s.skinny = nullptr;
  s.linked = !s.boundary_places.empty() && is_linked(batch);
  s.streaming = s.streams(batch.tokens);
  if (s.streaming) shape.joint_tokens = s.joint_tokens;
  const auto found = s.buckets.find(batch.tokens, shape.max_positions);
  const bool graphs = s.setup.gpu_graphs && !s.streaming && !shape.images;
  if (shape.one_token_each && graphs && found) {
    s.bucket = *found;
    shape = s.buckets.shape(s.bucket);
  } else {
    shape.max_positions = s.buckets.position_bound(shape.max_positions);
    if (graphs && !s.steps_are_watched() && s.runs.size() == 1 &&
        batch.tokens <= SkinnyGraphs::kMostTokens) {
      s.skinny = &s.skinny_graphs.meet({shape.tokens, shape.outputs, shape.max_positions},
                                       s.parts.parts.size());
      s.runs[0].positions = shape.max_positions;  // of any pass that the graph serves
    }
    shape.runs = s.runs;
  }
  s.shape = shape;
}

// The graph of a part in the pass at hand; null: it is queued launch by launch.
GpuGraph* graph_of(GpuState& s, size_t p, const Part& part) {
  if (s.bucket >= 0) return s.graphs[s.bucket].size() > p ? s.graphs[s.bucket][p].get() : nullptr;
  if (s.skinny == nullptr) return nullptr;
  std::unique_ptr<GpuGraph>& graph = s.skinny->parts[p];
  GpuDevice& device = s.devices[part.device];
  if (!graph && s.skinny->wanted() && can_be_graph(s, part) && !device.trace) {
    auto made = capture(device, [&] { return queue_part(s, part, s.shape); });
    s.skinny->failed = !made;
    if (made) graph = made.take();
  }
  return graph.get();
}

Status send_inputs(GpuState& s, const Batch& batch) {
  for (GpuDevice& device : s.devices) {
    // Those of a pass that has begun before may be on their way still.
    if (s.inputs_sent) KTX_TRY(device.named(device.gpu->finish()));
  }
  s.inputs_sent = true;
  const int64_t sequences = batch.sequence[batch.tokens - 1] + 1;
  const int64_t bytes = s.batch_layout.fill(s.host_batch.data(), batch, sequences, s.shape, s.kv);
  for (GpuDevice& device : s.devices) {
    KTX_TRY(
        device.gpu->upload(device.batch.data(), s.host_batch.data(), static_cast<uint64_t>(bytes)));
  }
  return {};
}

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(std::unique_ptr<GpuState> state) : s_(std::move(state)) {
    for (const SequenceKind kind : kBlockKinds) {
      s_->kv.of(kind).add_copy(
          [this, kind](int64_t to, int64_t from) { copy_block(kind, to, from); });
    }
  }
  ~GpuBackend() override {
    for (const SequenceKind kind : kBlockKinds) s_->kv.of(kind).drop_copies();
  }

  Status begin(const Batch& batch) override {
    if (broken_) return Error{"a GPU failed in an earlier step; start the program again"};
    choose_shape(*s_, batch);
    // For prompts a layer of the GPU's takes too long: 5 to 12 % slower (H200, 2026-11).
    if (s_->parts.has_cpu() && s_->bucket >= 0) awake_.emplace(s_->pool);
    tokens_ = batch.tokens;
    for (GpuDevice& device : s_->devices) {
      if (device.guests && !s_->inputs_sent) KTX_TRY(device.named(device.guests->begin_forward()));
      if (device.trace) KTX_TRY(device.named(device.trace->begin_forward()));
      if (s_->streaming && device.streams) {
        KTX_TRY(device.named(device.streams->begin_forward(tokens_, s_->shape.joint_tokens)));
      }
    }
    return send_inputs(*s_, batch);
  }

  Status resume(const Batch& batch) override {
    choose_shape(*s_, batch);
    tokens_ = batch.tokens;
    return send_inputs(*s_, batch);
  }

  bool takes(size_t part) const override { return s_->streaming && s_->taken[part]; }
  int64_t joint_tokens() const override { return s_->joins() ? s_->joint_tokens : 0; }

  bool may_stop(size_t p) const override {
    if (s_->bucket >= 0) return s_->run_of_part[p] == p;
    const std::vector<Part>& parts = s_->parts.parts;
    const auto sums = [&](size_t part) { return parts[part].kind == Part::Kind::Reduce; };
    return p == 0 || !sums(p) || !sums(p - 1);
  }

  Result<bool> run(size_t p, const Batch& batch, const ForwardWatch* watch) override {
    const Part& part = takes(p) ? *s_->taken[p] : s_->parts.parts[p];
    GpuDevice& device = s_->devices[part.device];
    if (watch && watch->progress) watch->progress(0);
    if (s_->steps_are_watched()) {
      KTX_TRY(run_watched(*s_, part, batch, s_->shape));
    } else if (s_->bucket >= 0 && s_->graph_of_part[p] != p) {
      // The graph of a part before this one has it.
    } else if (GpuGraph* graph = graph_of(*s_, p, part)) {
      const TraceSpan span{.step = part.first_step, .steps = part.step_count, .what = "graph"};
      KTX_TRY(device.named(device.traced(span, [&] { return device.gpu->launch(*graph); })));
    } else {
      KTX_TRY(queue_part(*s_, part, s_->shape));
    }
    if (part.awaited) KTX_TRY(device.named(device.gpu->set(s_->marks[p])));
    return true;
  }

  Status wait(size_t part) override {
    GpuDevice& device = s_->devices[s_->parts.parts[part].device];
    return device.named(device.gpu->wait(s_->marks[part]));
  }

  Status finish() override {
    for (uint32_t step : s_->steps) {
      weight_bytes_ += step_weight_bytes(s_->program, s_->program.steps[step], tokens_);
    }
    for (GpuDevice& device : s_->devices) {
      if (s_->streaming && device.streams) {
        weight_bytes_ += static_cast<int64_t>(device.streams->forward_bytes());
      }
      KTX_TRY(device.named(device.gpu->finish()));
      if (device.trace) KTX_TRY(device.named(device.trace->end_forward()));
    }
    s_->inputs_sent = false;
    awake_.reset();
    return {};
  }

  void abandon() override {
    awake_.reset();
    broken_ = !s_->setup.check_finite;
  }

  bool keeps_logits() const override { return s_->logits.has_value(); }
  Status send_logits(const Batch& batch) override {
    if (!s_->logits) return {};
    GpuDevice& device = s_->devices[s_->parts.logits_device];
    return device.named(s_->logits->queue(batch, device.workspace.data()));
  }
  BestLogits best(int64_t row, int32_t count) const override {
    return s_->logits->best(row, count);
  }
  Status fetch_logits(int64_t row) override {
    GpuDevice& device = s_->devices[s_->parts.logits_device];
    KTX_TRY(device.named(s_->logits->fetch(row)));
    return device.named(device.gpu->finish());
  }

  // By way of pinned memory, and with one wait a device: a drafter reads behind every pass.
  Status read(std::span<const ValueRead> reads) override {
    for (size_t number = 0; number < s_->devices.size(); ++number) {
      GpuDevice& device = s_->devices[number];
      std::vector<ValueRead> own;
      uint64_t bytes = 0;
      for (const ValueRead& read : reads) {
        if (read.device != device.name) continue;
        own.push_back(read);
        bytes += read.out.size_bytes();
      }
      if (own.empty()) continue;
      std::byte* const copies = device.room_for_reads(bytes);
      std::byte* to = copies;
      for (const ValueRead& read : own) {
        const int64_t offset = program::row_bytes(s_->program.values[read.value]) * read.row;
        KTX_TRY(device.gpu->download(to, s_->place(static_cast<int>(number), read.value) + offset,
                                     read.out.size_bytes()));
        to += read.out.size_bytes();
      }
      KTX_TRY(device.named(device.gpu->finish()));
      const std::byte* from = copies;
      for (const ValueRead& read : own) {
        std::memcpy(read.out.data(), from, read.out.size_bytes());
        from += read.out.size_bytes();
      }
    }
    return {};
  }

  bool has_weight(uint32_t blob) const override { return find_weight(blob).first != nullptr; }
  Status read_weight(uint32_t blob, uint64_t offset, std::span<std::byte> out) override {
    const auto [device, at] = find_weight(blob);
    std::byte* const copy = device->room_for_reads(out.size());
    KTX_TRY(device->named(
        device->gpu->download(copy, device->weights.data() + at + offset, out.size())));
    KTX_TRY(device->named(device->gpu->finish()));
    std::memcpy(out.data(), copy, out.size());
    return {};
  }

  Status map_block(const KvBlock& block, bool write, std::span<std::byte*> slots) override {
    for (GpuDevice& device : s_->devices) {
      for (const SequenceKind kind : kBlockKinds) {
        if (block[kind] == nullptr) continue;
        std::vector<std::byte>& copy = device.block_copy[kind];
        copy.resize(static_cast<size_t>(device.slots.of(kind).block_bytes()));
        for (int32_t slot = 0; slot < device.slots.slots(); ++slot) {
          if (!device.has_slot[slot] || device.slots.kind_of(slot) != kind) continue;
          slots[slot] = copy.data() + device.slots.slot_offset(slot);
        }
        if (write) continue;
        KTX_TRY(device.gpu->download(copy.data(), device_block(device, kind, block), copy.size()));
      }
      KTX_TRY(device.named(device.gpu->finish()));
    }
    return {};
  }
  Status unmap_block(const KvBlock& block, bool write) override {
    for (GpuDevice& device : s_->devices) {
      if (!write) break;
      for (const SequenceKind kind : kBlockKinds) {
        if (block[kind] == nullptr) continue;
        const std::vector<std::byte>& copy = device.block_copy[kind];
        KTX_TRY(device.gpu->upload(device_block(device, kind, block), copy.data(), copy.size()));
      }
      KTX_TRY(device.named(device.gpu->finish()));
    }
    return {};
  }

  Status copy_states(StateSlot slot, bool write, std::span<std::byte> all) override {
    for (GpuDevice& device : s_->devices) {
      std::byte* const own = device.states.data() + slot * device.state_layout.bytes();
      for (const plan::StatePart& part : device.state_parts) {
        std::byte* const there = all.data() + part.among_all;
        KTX_TRY(device.named(write ? device.gpu->upload(own + part.here, there, part.bytes)
                                   : device.gpu->download(there, own + part.here, part.bytes)));
      }
      KTX_TRY(device.named(device.gpu->finish()));
    }
    return {};
  }

  void leave_boundaries() override { s_->boundary_places.clear(); }
  GpuPlace boundary_place(uint32_t value) const override {
    const auto found = s_->boundary_places.find(value);
    return found == s_->boundary_places.end() ? GpuPlace() : found->second;
  }

  int64_t weight_bytes() const override { return weight_bytes_; }
  Status add_expert_counts(std::span<uint64_t> counts) override {
    for (GpuDevice& device : s_->devices) {
      if (device.expert_counts.size() == 0) continue;
      std::vector<uint64_t> own(counts.size());
      KTX_TRY(device.named(device.gpu->download(reinterpret_cast<std::byte*>(own.data()),
                                                device.expert_counts.data(),
                                                own.size() * sizeof(uint64_t))));
      KTX_TRY(device.named(device.gpu->finish()));
      for (size_t i = 0; i < own.size(); ++i) counts[i] += own[i];
    }
    return {};
  }
  void enable_times(bool on) override {
    s_->times.assign(on ? s_->program.steps.size() : 0, {});
    for (size_t i = 0; i < s_->times.size(); ++i) s_->times[i].step = static_cast<uint32_t>(i);
  }
  void add_times(std::vector<StepTotals>& out) const override {
    if (s_->times.empty()) return;
    for (uint32_t step : s_->steps) out.push_back(s_->times[step]);
  }

  void set_trace(ForwardTrace* trace) override {
    for (GpuDevice& device : s_->devices) {
      device.trace = trace ? std::make_unique<GpuTrace>(*device.gpu, *trace, device.name) : nullptr;
      if (device.streams) device.streams->set_trace(device.trace.get());
    }
  }

  std::vector<std::string> notes() const override { return s_->notes; }
  std::vector<GpuUse> gpus() const override {
    std::vector<GpuUse> all;
    for (const GpuDevice& device : s_->devices) {
      all.push_back({device.gpu->facts().name, device.gpu->facts().bandwidth_gbps});
    }
    return all;
  }
  Result<KernelTime> time_steps(size_t part, std::span<const uint32_t> steps) override {
    return runtime::time_steps(*s_, s_->parts.parts[part], steps);
  }
  std::vector<uint32_t> steps_of_launch(uint32_t step) const override {
    return runtime::steps_of_launch(*s_, step);
  }

 private:
  // The device whose memory has a weight, and its place there; null: none.
  std::pair<GpuDevice*, uint64_t> find_weight(uint32_t blob) const {
    for (GpuDevice& device : s_->devices) {
      if (device.guests && device.guests->changes(blob)) return {};
      const auto found = std::ranges::find(device.image.blobs, blob, &WeightImage::Blob::blob);
      if (found != device.image.blobs.end()) return {&device, found->offset};
    }
    return {};
  }

  // Its part of a block of the cache.
  std::byte* device_block(GpuDevice& device, SequenceKind kind, const KvBlock& block) {
    return device.kv[kind].data() +
           s_->kv.of(kind).block_number(block[kind]) * device.slots.of(kind).block_bytes();
  }

  void copy_block(SequenceKind kind, int64_t to, int64_t from) {
    for (GpuDevice& device : s_->devices) {
      const int64_t bytes = device.slots.of(kind).block_bytes();
      std::byte* const memory = device.kv[kind].data();
      // An error shows at the next run.
      (void)device.gpu
          ->copy(memory + to * bytes, memory + from * bytes, static_cast<uint64_t>(bytes))
          .ok();
    }
  }

  std::unique_ptr<GpuState> s_;
  std::optional<ThreadPool::Awake> awake_;  // during a pass of few tokens
  int64_t tokens_ = 0;                      // of the pass
  int64_t weight_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace

Result<std::unique_ptr<Backend>> create_gpu_backend(const BackendSetup& setup,
                                                    const BoundParts& parts,
                                                    const HostArena& host) {
  return std::unique_ptr<Backend>(
      std::make_unique<GpuBackend>(KTX_TRY(start_gpus(setup, parts, host))));
}

}  // namespace ktx::runtime
