// Streamed experts of one GPU (lib/program/streams.h): in passes of many tokens it computes
// experts whose weights are in main memory. Panels are copied over PCIe into one of two slots, a
// piece at a time (stream_memory.h: a layer, a matrix or a part of one), while what came before is
// computed, and become tiles in a third place:
//
//   uploads   piece 0 | piece 1 |         piece 2          | piece 3 ...
//   queue               ... retile 0, experts 0 ... retile 1, experts 1 ...
//
// A slot is free again once its panels are tiles, not when its step is done.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/plan/stream_memory.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/gpu/gpu_trace.h"
#include "lib/support/result.h"

namespace ktx::runtime {

class ExpertStreams {
 public:
  // Null where no pass of the shape streams to this device. Queues the upload of vectors.
  static Result<std::unique_ptr<ExpertStreams>> create(const plan::PlanView& plan,
                                                       std::span<const program::Stream> streams,
                                                       std::string_view device,
                                                       const plan::RunShape& shape,
                                                       plan::StreamSlots slots, Gpu& gpu);

  int64_t least_tokens() const { return sizes_.least_tokens; }
  uint64_t forward_bytes() const;  // of all layers, over PCIe in the pass at hand

  // A streaming pass: once at its begin, and then before each step that computes() in order.
  // `joint`: of its shape (lib/program/joint_experts.h); the other experts do not come.
  Status begin_forward(int64_t tokens, int64_t joint);
  Status begin_step(uint32_t step);

  void set_trace(GpuTrace* trace) { trace_ = trace; }  // null: none

  // The place here of a value of the CPU; null where it has none.
  std::byte* place(uint32_t value) const;
  bool computes(uint32_t step) const { return steps_[step]; }
  std::byte* arena() const { return arena_.data(); }
  std::span<const uint64_t> buffer_offsets() const { return sizes_.arena.offsets; }
  std::span<std::byte* const> blobs() const { return blobs_; }
  std::span<const uint32_t> parts() const { return parts_; }

 private:
  struct Slot {
    GpuMemory panels;
    GpuMark copied = 0, taken = 0;
  };
  ExpertStreams(const plan::PlanView& plan, Gpu& gpu) : plan_(plan), gpu_(gpu) {}
  Status allocate(std::span<const program::Stream> streams, std::string_view device);
  Status add_layer(const program::Stream& stream, uint64_t& vectors);
  void find_pieces(int64_t tokens, int64_t joint);
  Status send(size_t piece);
  Status convert(const plan::StreamPiece& piece, const Slot& slot);
  template <class Work>
  Status traced(GpuLane lane, const TraceSpan& span, const Work& work);

  const plan::PlanView& plan_;
  Gpu& gpu_;
  GpuTrace* trace_ = nullptr;
  plan::StreamMemory sizes_;
  std::vector<plan::StreamPiece> pieces_;  // of the pass
  std::vector<std::byte*> blobs_;          // by blob
  std::vector<bool> values_, steps_;
  std::vector<uint32_t> parts_;  // by layer
  size_t next_ = 0;              // piece that is not tiles yet, in this pass
  Slot slots_[2];
  GpuMemory tiles_, vectors_, arena_;
};

}  // namespace ktx::runtime
