#include "lib/runtime/gpu/expert_streams.h"

#include <algorithm>

#include "lib/formats/layout.h"
#include "lib/program/joint_experts.h"

namespace ktx::runtime {
namespace {}  // namespace

Result<std::unique_ptr<ExpertStreams>> ExpertStreams::create(
    const plan::PlanView& plan, std::span<const program::Stream> streams, std::string_view device,
    const plan::RunShape& shape, plan::StreamSlots slots, Gpu& gpu) {
  std::unique_ptr<ExpertStreams> own(new ExpertStreams(plan, gpu));
  own->sizes_ = KTX_TRY(plan::stream_memory(*plan.program, streams, device, shape, slots));
  if (own->sizes_.least_tokens == 0) return std::unique_ptr<ExpertStreams>();
  KTX_TRY(own->allocate(streams, device));
  return own;
}

Status ExpertStreams::allocate(std::span<const program::Stream> streams, std::string_view device) {
  for (Slot& slot : slots_) {
    slot.panels = KTX_TRY(gpu_.allocate(sizes_.panel_bytes, "streamed experts"));
    slot.copied = KTX_TRY(gpu_.new_mark());
    slot.taken = KTX_TRY(gpu_.new_mark());
  }
  tiles_ = KTX_TRY(gpu_.allocate(sizes_.tile_bytes, "streamed experts"));
  vectors_ = KTX_TRY(gpu_.allocate(sizes_.vector_bytes, "streamed experts"));
  arena_ = KTX_TRY(gpu_.allocate(sizes_.arena.total_bytes, "streamed experts"));
  KTX_TRY(gpu_.clear(arena_.data(), arena_.size()));
  blobs_.assign(plan_.program->blobs.size(), nullptr);
  values_.assign(plan_.program->values.size(), false);
  steps_.assign(plan_.program->steps.size(), false);
  uint64_t vectors = 0;
  for (const program::Stream& stream : streams) {
    if (stream.device == device) KTX_TRY(add_layer(stream, vectors));
  }
  return {};
}

Status ExpertStreams::add_layer(const program::Stream& stream, uint64_t& vectors) {
  parts_.push_back(static_cast<uint32_t>(stream.part));
  for (int32_t value : stream.values) values_[value] = true;
  for (int32_t step : stream.steps) steps_[step] = true;
  for (int32_t blob : stream.products) {
    blobs_[blob] = tiles_.data() + sizes_.tiles[blob];
  }
  for (int32_t blob : stream.vectors) {
    const auto bytes = plan_.blob_bytes(static_cast<uint32_t>(blob));
    blobs_[blob] = vectors_.data() + vectors;
    KTX_TRY(gpu_.upload(blobs_[blob], bytes.data(), bytes.size()));
    vectors += plan::stream_aligned(bytes.size());
  }
  return {};
}

uint64_t ExpertStreams::forward_bytes() const {
  uint64_t sum = 0;
  for (const plan::StreamPiece& piece : pieces_) {
    for (const plan::StreamCopy& copy : piece.copies) sum += copy.bytes;
  }
  return sum;
}

template <class Work>
Status ExpertStreams::traced(GpuLane lane, const TraceSpan& span, const Work& work) {
  if (!trace_) return work();
  KTX_TRY(trace_->begin(lane));
  KTX_TRY(work());
  return trace_->end(lane, span);
}

Status ExpertStreams::send(size_t number) {
  if (number >= pieces_.size()) return {};
  const plan::StreamPiece& piece = pieces_[number];
  const Slot& slot = slots_[number % 2];
  KTX_TRY(gpu_.uploads_after(slot.taken));
  TraceSpan span{.step = piece.step, .steps = 1, .what = "experts", .bytes = piece.bytes()};
  return traced(GpuLane::Copies, span, [&]() -> Status {
    for (const plan::StreamCopy& copy : piece.copies) {
      KTX_TRY(gpu_.upload_beside(slot.panels.data() + copy.offset,
                                 plan_.blob_bytes(copy.blob).data() + copy.begin, copy.bytes,
                                 slot.copied));
    }
    return {};
  });
}

void ExpertStreams::find_pieces(int64_t tokens, int64_t joint) {
  pieces_ = sizes_.pieces;
  for (plan::StreamPiece& piece : pieces_) {
    for (plan::StreamCopy& copy : piece.copies) {
      const program::Blob& blob = plan_.program->blobs[copy.blob];
      const auto experts = static_cast<int32_t>(blob.matrices);
      const int64_t all = plan::strips_of(blob);
      const int64_t end = all / experts * program::experts_of_gpu(experts, tokens, joint);
      const int64_t kept = std::clamp<int64_t>(end - copy.first_strip, 0, copy.strips);
      copy.bytes = copy.bytes / static_cast<uint64_t>(copy.strips) * static_cast<uint64_t>(kept);
      copy.strips = kept;
    }
    std::erase_if(piece.copies, [](const plan::StreamCopy& copy) { return copy.strips == 0; });
  }
  std::erase_if(pieces_, [](const plan::StreamPiece& piece) { return piece.copies.empty(); });
}

Status ExpertStreams::begin_forward(int64_t tokens, int64_t joint) {
  next_ = 0;
  find_pieces(tokens, joint);
  KTX_TRY(send(0));
  return send(1);
}

Status ExpertStreams::begin_step(uint32_t step) {
  while (next_ < pieces_.size() && pieces_[next_].step == step) {
    const plan::StreamPiece& piece = pieces_[next_];
    const Slot& slot = slots_[next_ % 2];
    KTX_TRY(gpu_.queue_after(slot.copied));
    KTX_TRY(traced(GpuLane::Queue, {.step = step, .steps = 1, .what = "experts to tiles"},
                   [&] { return convert(piece, slot); }));
    KTX_TRY(gpu_.set(slot.taken));
    KTX_TRY(send(next_ + 2));
    ++next_;
  }
  return {};
}

Status ExpertStreams::convert(const plan::StreamPiece& piece, const Slot& slot) {
  for (const plan::StreamCopy& copy : piece.copies) {
    const program::Blob& packed = plan_.program->blobs[copy.blob];
    KTX_TRY(gpu_.retile({packed.dtype, packed.layout, packed.cols, copy.strips,
                         slot.panels.data() + copy.offset, tiles_.data() + copy.tiles}));
  }
  return {};
}

std::byte* ExpertStreams::place(uint32_t value) const {
  if (!values_[value]) return nullptr;
  return arena_.data() + sizes_.arena.offsets[plan_.program->values[value].buffer];
}

}  // namespace ktx::runtime
