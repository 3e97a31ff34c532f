#include "lib/plan/stream_memory.h"

#include <algorithm>

#include "lib/formats/layout_size.h"
#include "lib/program/program.h"
#include "lib/support/byte_reader.h"

namespace ktx::plan {
namespace {

uint64_t aligned(uint64_t bytes) {
  return (bytes + kStreamAlignment - 1) / kStreamAlignment * kStreamAlignment;
}

// Bytes of 16 rows.
uint64_t strip_bytes(const BlobRecord& blob, Layout layout) {
  const auto strip = matrix_bytes(layout, static_cast<DType>(blob.dtype), kPanelRows, blob.cols);
  return static_cast<uint64_t>(strip.value_or(0));
}

// The strips from `first` on as a copy at `offset` of a slot.
StreamCopy copy_of(const PlanView& plan, uint32_t blob, int64_t first, int64_t strips,
                   uint64_t offset, uint64_t tiles) {
  const BlobRecord& record = plan.blobs[blob];
  const uint64_t panel = strip_bytes(record, static_cast<Layout>(record.layout));
  return {blob,
          first,
          strips,
          static_cast<uint64_t>(first) * panel,
          static_cast<uint64_t>(strips) * panel,
          offset,
          tiles + static_cast<uint64_t>(first) * strip_bytes(record, Layout::Marlin)};
}

// Products of a streamed step, in the order of their use.
std::vector<uint32_t> products_of(const PlanView& plan, const program::Stream& stream,
                                  int32_t step) {
  std::vector<uint32_t> blobs;
  for (const uint32_t blob : plan.weights(plan.steps[step])) {
    const bool product =
        blob != kNone &&
        std::ranges::find(stream.products, static_cast<int32_t>(blob)) != stream.products.end();
    if (product) blobs.push_back(blob);
  }
  return blobs;
}

void add_pieces(const PlanView& plan, const program::Stream& stream, StreamSlots slots,
                StreamMemory& memory) {
  StreamPiece whole;
  uint64_t offset = 0, tiles = 0;
  for (const int32_t step : stream.steps) {
    const std::vector<uint32_t> products = products_of(plan, stream, step);
    if (products.empty()) continue;
    // The tiles of the step before are not needed any more.
    if (slots != StreamSlots::Layer) tiles = 0;
    if (whole.copies.empty()) whole.step = static_cast<uint32_t>(step);
    for (const uint32_t blob : products) {
      const int64_t strips = strips_of(plan.blobs[blob]);
      memory.tiles[blob] = tiles;
      if (slots == StreamSlots::Layer) {
        whole.copies.push_back(copy_of(plan, blob, 0, strips, offset, tiles));
        offset += aligned(whole.copies.back().bytes);
      } else {
        const int64_t parts =
            slots == StreamSlots::Matrix ? 1 : std::min<int64_t>(kStreamParts, strips);
        for (int64_t i = 0; i < parts; ++i) {
          const int64_t begin = strips * i / parts, end = strips * (i + 1) / parts;
          memory.pieces.push_back(
              {static_cast<uint32_t>(step), {copy_of(plan, blob, begin, end - begin, 0, tiles)}});
        }
      }
      tiles += aligned(tile_bytes(plan.blobs[blob]));
    }
    memory.tile_bytes = std::max(memory.tile_bytes, tiles);
  }
  if (!whole.copies.empty() && slots == StreamSlots::Layer) memory.pieces.push_back(whole);
}

}  // namespace

int64_t strips_of(const BlobRecord& blob) {
  return stored_rows(static_cast<Layout>(blob.layout), blob.rows) / kPanelRows * blob.matrices;
}

uint64_t StreamPiece::bytes() const {
  uint64_t end = 0;
  for (const StreamCopy& copy : copies) end = std::max(end, copy.offset + aligned(copy.bytes));
  return end;
}

uint64_t tile_bytes(const BlobRecord& blob) {
  const auto matrix =
      matrix_bytes(Layout::Marlin, static_cast<DType>(blob.dtype), blob.rows, blob.cols);
  return static_cast<uint64_t>(matrix.value_or(0)) * static_cast<uint64_t>(blob.matrices);
}

Result<StreamMemory> stream_memory(const PlanView& plan, std::span<const program::Stream> streams,
                                   std::string_view device, const RunShape& shape,
                                   StreamSlots slots) {
  StreamMemory memory;
  memory.tiles.assign(plan.blobs.size(), 0);
  std::vector<BufferRecord> buffers(plan.buffers.size());
  const program::Stream* before = nullptr;  // on the device
  for (const program::Stream& stream : streams) {
    if (stream.device != device) continue;
    for (const LaunchRecord& launch : plan.launches) {
      const uint32_t step = plan.launch_steps[launch.first_step];
      if (launch.fused_op != kNone || step != static_cast<uint32_t>(stream.steps[0])) continue;
      const int64_t least = launch.least_tokens;
      memory.least_tokens = memory.least_tokens == 0 ? least : std::min(memory.least_tokens, least);
    }
    // Deferred experts find the tiles of their layer where they are whole.
    const bool there = slots == StreamSlots::Layer && before && before->products == stream.products;
    if (!there) add_pieces(plan, stream, slots, memory);
    before = &stream;
    for (int32_t blob : stream.vectors) memory.vector_bytes += aligned(plan.blobs[blob].size);
    for (int32_t value : stream.values) {
      const uint32_t buffer = plan.values[value].buffer;
      buffers[buffer] = plan.buffers[buffer];
    }
  }
  for (const StreamPiece& piece : memory.pieces) {
    memory.panel_bytes = std::max(memory.panel_bytes, piece.bytes());
  }
  if (memory.least_tokens == 0 || shape.step_tokens < memory.least_tokens) return StreamMemory();
  memory.arena = KTX_TRY(lay_out_arena(buffers, shape.step_tokens, shape.step_outputs));
  return memory;
}

}  // namespace ktx::plan
