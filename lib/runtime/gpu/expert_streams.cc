#include "lib/runtime/gpu/expert_streams.h"

#include <algorithm>
#include <numeric>

#include "lib/formats/layout_size.h"

namespace ktx::runtime {
namespace {

uint64_t aligned(uint64_t bytes) {
  return (bytes + plan::kStreamAlignment - 1) / plan::kStreamAlignment * plan::kStreamAlignment;
}

}  // namespace

Result<std::unique_ptr<ExpertStreams>> ExpertStreams::create(
    const plan::PlanView& plan, std::span<const launches::Stream> streams, std::string_view device,
    const plan::RunShape& shape, Gpu& gpu) {
  std::unique_ptr<ExpertStreams> own(new ExpertStreams(gpu));
  own->sizes_ = KTX_TRY(plan::stream_memory(plan, streams, device, shape));
  if (own->sizes_.least_tokens == 0) return std::unique_ptr<ExpertStreams>();
  KTX_TRY(own->allocate(plan, streams, device));
  return own;
}

Status ExpertStreams::allocate(const plan::PlanView& plan,
                               std::span<const launches::Stream> streams, std::string_view device) {
  for (Slot& slot : slots_) {
    slot.panels = KTX_TRY(gpu_.allocate(sizes_.panel_bytes, "streamed experts"));
    slot.copied = KTX_TRY(gpu_.new_mark());
    slot.taken = KTX_TRY(gpu_.new_mark());
  }
  tiles_ = KTX_TRY(gpu_.allocate(sizes_.tile_bytes, "streamed experts"));
  vectors_ = KTX_TRY(gpu_.allocate(sizes_.vector_bytes, "streamed experts"));
  arena_ = KTX_TRY(gpu_.allocate(sizes_.arena.total_bytes, "streamed experts"));
  KTX_TRY(gpu_.clear(arena_.data(), arena_.size()));
  records_.assign(plan.blobs.begin(), plan.blobs.end());
  blobs_.assign(plan.blobs.size(), nullptr);
  values_.assign(plan.values.size(), false);
  steps_.assign(plan.steps.size(), false);
  uint64_t vectors = 0;
  for (const launches::Stream& stream : streams) {
    if (stream.device == device) KTX_TRY(add_layer(plan, stream, vectors));
  }
  view_ = plan;
  view_.blobs = records_;
  return {};
}

Status ExpertStreams::add_layer(const plan::PlanView& plan, const launches::Stream& stream,
                                uint64_t& vectors) {
  Layer& layer = layers_.emplace_back();
  parts_.push_back(static_cast<uint32_t>(stream.part));
  for (int32_t value : stream.values) values_[value] = true;
  for (int32_t step : stream.steps) steps_[step] = true;
  uint64_t panels = 0, tiles = 0;
  for (int32_t blob : stream.products) {
    const plan::BlobRecord& packed = plan.blobs[blob];
    const auto layout = static_cast<Layout>(packed.layout);
    const int64_t strips = stored_rows(layout, packed.rows) / kPanelRows * packed.matrices;
    blobs_[blob] = tiles_.data() + tiles;
    layer.weights.push_back({plan.blob_bytes(static_cast<uint32_t>(blob)).data(),
                             packed.size,
                             panels,
                             {static_cast<DType>(packed.dtype), layout, packed.cols, strips,
                              slots_[0].panels.data() + panels, blobs_[blob]}});
    records_[blob].layout = static_cast<uint16_t>(Layout::Marlin);
    records_[blob].size = plan::tile_bytes(packed);
    panels += aligned(packed.size);
    tiles += aligned(records_[blob].size);
  }
  for (int32_t blob : stream.vectors) {
    const auto bytes = plan.blob_bytes(static_cast<uint32_t>(blob));
    blobs_[blob] = vectors_.data() + vectors;
    KTX_TRY(gpu_.upload(blobs_[blob], bytes.data(), bytes.size()));
    vectors += aligned(bytes.size());
  }
  return {};
}

uint64_t ExpertStreams::layer_bytes() const {
  uint64_t sum = 0;
  for (const Layer& layer : layers_) {
    for (const Weights& weights : layer.weights) sum += weights.bytes;
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

Status ExpertStreams::send(size_t layer) {
  if (layer >= layers_.size()) return {};
  const Slot& slot = slots_[layer % 2];
  KTX_TRY(gpu_.uploads_after(slot.taken));
  TraceSpan span{.what = "experts"};
  for (const Weights& weights : layers_[layer].weights) span.bytes += weights.bytes;
  return traced(GpuLane::Copies, span, [&]() -> Status {
    for (const Weights& weights : layers_[layer].weights) {
      KTX_TRY(gpu_.upload_beside(slot.panels.data() + weights.offset, weights.host, weights.bytes,
                                 slot.copied));
    }
    return {};
  });
}

Status ExpertStreams::begin_pass() {
  KTX_TRY(send(0));
  return send(1);
}

Status ExpertStreams::begin_part(uint32_t part) {
  const auto layer =
      static_cast<size_t>(std::find(parts_.begin(), parts_.end(), part) - parts_.begin());
  const Slot& slot = slots_[layer % 2];
  KTX_TRY(gpu_.queue_after(slot.copied));
  KTX_TRY(traced(GpuLane::Queue, {.what = "experts to tiles"},
                 [&] { return convert(layers_[layer], slot); }));
  KTX_TRY(gpu_.set(slot.taken));
  return send(layer + 2);
}

Status ExpertStreams::convert(const Layer& layer, const Slot& slot) {
  for (const Weights& weights : layer.weights) {
    GpuRetile retile = weights.retile;
    retile.panels = slot.panels.data() + weights.offset;
    KTX_TRY(gpu_.retile(retile));
  }
  return {};
}

std::byte* ExpertStreams::place(uint32_t value) const {
  if (!values_[value]) return nullptr;
  return arena_.data() + sizes_.arena.offsets[view_.values[value].buffer];
}

}  // namespace ktx::runtime
