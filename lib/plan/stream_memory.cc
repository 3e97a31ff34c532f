#include "lib/plan/stream_memory.h"

#include <algorithm>

#include "lib/formats/layout_size.h"
#include "lib/program/program.h"
#include "lib/support/byte_reader.h"

namespace ktx::plan {
namespace {

// Bytes of 16 rows.
uint64_t strip_bytes(const program::Blob& blob, Layout layout) {
  const auto strip = matrix_bytes(layout, blob.dtype, kPanelRows, blob.cols);
  return static_cast<uint64_t>(strip.value_or(0));
}

// The strips from `first` on as a copy at `offset` of a slot.
StreamCopy copy_of(const program::Program& program, int32_t number, int64_t first, int64_t strips,
                   uint64_t offset, uint64_t tiles) {
  const program::Blob& blob = program.blobs[number];
  const uint64_t panel = strip_bytes(blob, blob.layout);
  return {number,
          first,
          strips,
          static_cast<uint64_t>(first) * panel,
          static_cast<uint64_t>(strips) * panel,
          offset,
          tiles + static_cast<uint64_t>(first) * strip_bytes(blob, Layout::Marlin)};
}

// Products of a streamed step, in the order of their use.
std::vector<int32_t> products_of(const program::Program& program, const program::Stream& stream,
                                 int32_t step) {
  std::vector<int32_t> blobs = program.steps[step].weights;
  std::erase_if(blobs, [&](int32_t blob) {
    return std::ranges::find(stream.products, blob) == stream.products.end();
  });
  return blobs;
}

void add_pieces(const program::Program& program, const program::Stream& stream, StreamSlots slots,
                StreamMemory& memory) {
  StreamPiece whole;
  uint64_t offset = 0, tiles = 0;
  for (const int32_t step : stream.steps) {
    const std::vector<int32_t> products = products_of(program, stream, step);
    if (products.empty()) continue;
    // The tiles of the step before are not needed any more.
    if (slots != StreamSlots::Layer) tiles = 0;
    if (whole.copies.empty()) whole.step = static_cast<uint32_t>(step);
    for (const int32_t blob : products) {
      const int64_t strips = strips_of(program.blobs[blob]);
      memory.tiles[blob] = tiles;
      if (slots == StreamSlots::Layer) {
        whole.copies.push_back(copy_of(program, blob, 0, strips, offset, tiles));
        offset += stream_aligned(whole.copies.back().bytes);
      } else {
        const int64_t parts =
            slots == StreamSlots::Matrix ? 1 : std::min<int64_t>(kStreamParts, strips);
        for (int64_t i = 0; i < parts; ++i) {
          const int64_t begin = strips * i / parts, end = strips * (i + 1) / parts;
          memory.pieces.push_back({static_cast<uint32_t>(step),
                                   {copy_of(program, blob, begin, end - begin, 0, tiles)}});
        }
      }
      tiles += stream_aligned(program::blob_bytes(program.blobs[blob], Layout::Marlin));
    }
    memory.tile_bytes = std::max(memory.tile_bytes, tiles);
  }
  if (!whole.copies.empty() && slots == StreamSlots::Layer) memory.pieces.push_back(whole);
}

}  // namespace

int64_t strips_of(const program::Blob& blob) {
  return stored_rows(blob.layout, blob.rows) / kPanelRows * blob.matrices;
}

uint64_t StreamPiece::bytes() const {
  uint64_t end = 0;
  for (const StreamCopy& copy : copies)
    end = std::max(end, copy.offset + stream_aligned(copy.bytes));
  return end;
}

Result<StreamMemory> stream_memory(const program::Program& program,
                                   std::span<const program::Stream> streams,
                                   std::string_view device, const RunShape& shape,
                                   StreamSlots slots) {
  StreamMemory memory;
  memory.tiles.assign(program.blobs.size(), 0);
  std::vector<program::Buffer> buffers(program.buffers.size());
  const program::Stream* before = nullptr;  // on the device
  for (const program::Stream& stream : streams) {
    if (stream.device != device) continue;
    for (const program::Launch& launch : program.launches) {
      if (launch.op || launch.steps[0] != stream.steps[0]) continue;
      const int64_t least = launch.least_tokens;
      memory.least_tokens = memory.least_tokens == 0 ? least : std::min(memory.least_tokens, least);
    }
    // Deferred experts find the tiles of their layer where they are whole.
    const bool there = slots == StreamSlots::Layer && before && before->products == stream.products;
    if (!there) add_pieces(program, stream, slots, memory);
    before = &stream;
    for (int32_t blob : stream.vectors)
      memory.vector_bytes += stream_aligned(program::blob_bytes(program.blobs[blob]));
    for (int32_t value : stream.values) {
      const int32_t buffer = program.values[value].buffer;
      buffers[buffer] = program.buffers[buffer];
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
