#include "lib/plan/verify_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "lib/formats/layout_size.h"
#include "lib/formats/shape_text.h"
#include "lib/ops/value_row.h"
#include "lib/plan/tensor_parts.h"
#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

template <class... Args>
Status require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (ok) return {};
  return Error{fmt::format(format, std::forward<Args>(args)...)};
}

// [first, first + count) inside a table of `size` records.
bool in_table(uint64_t first, uint64_t count, uint64_t size) {
  return first <= size && count <= size - first;
}

bool in_range(int64_t value, int64_t low, int64_t high) {
  return low <= value && value <= high;
}

bool is_string(const PlanView& plan, uint32_t index) {
  return index < plan.string_entries.size();
}

Status verify_strings(const PlanView& plan) {
  for (size_t i = 0; i < plan.string_entries.size(); ++i) {
    const StringEntry& entry = plan.string_entries[i];
    KTX_TRY(require(in_table(entry.offset, entry.size, plan.string_text.size()),
                    "string {} is bytes {} to {} of a text of {}", i, entry.offset,
                    uint64_t{entry.offset} + entry.size, plan.string_text.size()));
  }
  return {};
}

Status verify_gguf(const PlanView& plan) {
  KTX_TRY(require(!plan.gguf_shards.empty(), "the gguf-header section has no shard"));
  for (size_t i = 0; i < plan.gguf_shards.size(); ++i) {
    const GgufShardRecord& shard = plan.gguf_shards[i];
    KTX_TRY(require(in_table(shard.header_offset, shard.header_size, plan.gguf_section.size()),
                    "GGUF shard {}: header at {} with {} bytes does not fit a section of {}", i,
                    shard.header_offset, shard.header_size, plan.gguf_section.size()));
    KTX_TRY(require(shard.header_size <= shard.file_size && shard.file_size < uint64_t{1} << 56,
                    "GGUF shard {}: file of {} bytes with a header of {}", i, shard.file_size,
                    shard.header_size));
  }
  for (size_t i = 0; i < plan.gguf_tensors.size(); ++i) {
    const GgufTensorRecord& tensor = plan.gguf_tensors[i];
    KTX_TRY(require(is_string(plan, tensor.name), "GGUF tensor {}: name {} is no string", i,
                    tensor.name));
    const std::string_view name = plan.string(tensor.name);
    KTX_TRY(require(tensor.shard < plan.gguf_shards.size(), "GGUF tensor '{}': shard {} of {}",
                    printable(name), tensor.shard, plan.gguf_shards.size()));
    KTX_TRY(require(tensor.dtype < all_dtypes().size(), "GGUF tensor '{}': element type {}",
                    printable(name), tensor.dtype));
    const auto row = row_bytes(static_cast<DType>(tensor.dtype), tensor.row_elems);
    const auto size = row && tensor.rows >= 0 ? checked_mul(static_cast<uint64_t>(*row),
                                                            static_cast<uint64_t>(tensor.rows))
                                              : std::nullopt;
    KTX_TRY(require(size == tensor.size, "GGUF tensor '{}': {} rows of {} elements in {} bytes",
                    printable(name), tensor.rows, tensor.row_elems, tensor.size));
    const GgufShardRecord& shard = plan.gguf_shards[tensor.shard];
    KTX_TRY(require(
        tensor.offset >= shard.header_size && in_table(tensor.offset, tensor.size, shard.file_size),
        "GGUF tensor '{}': {} bytes at {} of a file of {}", printable(name), tensor.size,
        tensor.offset, shard.file_size));
  }
  return {};
}

Status verify_blob(const PlanView& plan, uint32_t index, const SegmentRecord& segment,
                   uint64_t& at) {
  const BlobRecord& blob = plan.blobs[index];
  KTX_TRY(require(is_string(plan, blob.name), "weight {}: name {} is no string", index, blob.name));
  const std::string name = printable(plan.string(blob.name));
  KTX_TRY(
      require(blob.dtype < all_dtypes().size(), "weight '{}': element type {}", name, blob.dtype));
  KTX_TRY(require(blob.layout < all_layouts().size(), "weight '{}': layout {}", name, blob.layout));
  KTX_TRY(require(in_range(blob.rows, 1, kMaxDim) && in_range(blob.cols, 1, kMaxDim) &&
                      in_range(blob.matrices, 1, kMaxHeads),
                  "weight '{}': shape {}", name, shape_text(blob.cols, blob.rows, blob.matrices)));
  KTX_TRY(require(blob.rows * blob.cols <= kMaxBlobElems / blob.matrices, "weight '{}': shape {}",
                  name, shape_text(blob.cols, blob.rows, blob.matrices)));
  const auto row = row_bytes(static_cast<DType>(blob.dtype), blob.cols);
  KTX_TRY(require(row.has_value(), "weight '{}': rows of {} elements are no whole blocks of {}",
                  name, blob.cols, ktx::name(static_cast<DType>(blob.dtype))));
  const auto layout = static_cast<Layout>(blob.layout);
  const auto matrix = matrix_bytes(layout, static_cast<DType>(blob.dtype), blob.rows, blob.cols);
  const auto size =
      matrix ? checked_mul(static_cast<uint64_t>(*matrix), static_cast<uint64_t>(blob.matrices))
             : std::nullopt;
  KTX_TRY(require(size == blob.size, "weight '{}': shape {} of {} as {} in {} bytes", name,
                  shape_text(blob.cols, blob.rows, blob.matrices),
                  ktx::name(static_cast<DType>(blob.dtype)), ktx::name(layout), blob.size));
  KTX_TRY(require(blob.offset >= at && blob.size > 0 &&
                      in_table(blob.offset - segment.offset, blob.size, segment.size) &&
                      (blob.offset - segment.offset) % kBlobAlignment == 0,
                  "weight '{}': {} bytes at {} do not follow {} in the segment at {} with {} bytes",
                  name, blob.size, blob.offset, at, segment.offset, segment.size));
  at = blob.offset + blob.size;
  KTX_TRY(require(in_table(blob.first_slice, blob.slice_count, plan.slices.size()),
                  "weight '{}': slices {} to {} of {}", name, blob.first_slice,
                  uint64_t{blob.first_slice} + blob.slice_count, plan.slices.size()));
  const bool carried = segment.kind == static_cast<uint32_t>(SegmentKind::Carried);
  KTX_TRY(require(
      blob.slice_count > 0 || (!carried && blob.dtype == static_cast<uint16_t>(DType::F32) &&
                               blob.layout == static_cast<uint16_t>(Layout::Rows)),
      "weight '{}' has no source and is not a constant in F32", name));
  return {};
}

// Segments hold all blobs, in order, and are the weight sections one by one.
Status verify_segments(const PlanView& plan) {
  uint64_t next_blob = 0;
  size_t section = 0;
  for (uint32_t s = 0; s < plan.segments.size(); ++s) {
    const SegmentRecord& segment = plan.segments[s];
    KTX_TRY(require(is_string(plan, segment.device), "segment {}: device {} is no string", s,
                    segment.device));
    KTX_TRY(require(segment.kind <= static_cast<uint32_t>(SegmentKind::Carried),
                    "segment {}: kind {}", s, segment.kind));
    while (section < plan.sections.size() &&
           plan.sections[section].id != static_cast<uint32_t>(SectionId::WeightData)) {
      ++section;
    }
    KTX_TRY(require(
        section < plan.sections.size() && plan.sections[section].offset == segment.offset &&
            plan.sections[section].size == segment.size,
        "segment {}: {} bytes at {} are no weights section", s, segment.size, segment.offset));
    ++section;
    const uint64_t alignment =
        segment.size > kLargeSegmentBytes ? kLargeSegmentAlignment : kSegmentAlignment;
    KTX_TRY(require(segment.offset % alignment == 0, "segment {}: offset {} is no multiple of {}",
                    s, segment.offset, alignment));
    KTX_TRY(require(segment.first_blob == next_blob && segment.blob_count > 0 &&
                        in_table(segment.first_blob, segment.blob_count, plan.blobs.size()),
                    "segment {}: weights {} to {} of {}", s, segment.first_blob,
                    uint64_t{segment.first_blob} + segment.blob_count, plan.blobs.size()));
    next_blob += segment.blob_count;
    uint64_t at = segment.offset;
    for (uint32_t i = 0; i < segment.blob_count; ++i) {
      KTX_TRY(verify_blob(plan, segment.first_blob + i, segment, at));
    }
  }
  KTX_TRY(require(next_blob == plan.blobs.size(), "{} of {} weights belong to no segment",
                  plan.blobs.size() - next_blob, plan.blobs.size()));
  for (; section < plan.sections.size(); ++section) {
    KTX_TRY(require(plan.sections[section].id != static_cast<uint32_t>(SectionId::WeightData),
                    "the weights section at {} belongs to no segment",
                    plan.sections[section].offset));
  }
  return {};
}

// The slices of each blob fill it, in order; no byte of a tensor is in two of one device
// (a table that the embedding and the head share may be on two).
Status verify_slices(const PlanView& plan) {
  uint64_t next_slice = 0;
  struct Range {
    uint32_t tensor;
    uint32_t device;  // string
    uint64_t begin, end;
  };
  std::vector<uint32_t> device_of(plan.blobs.size(), 0);
  for (const SegmentRecord& segment : plan.segments) {
    for (uint32_t i = 0; i < segment.blob_count; ++i) {
      device_of[segment.first_blob + i] = segment.device;
    }
  }
  std::vector<Range> ranges;
  ranges.reserve(plan.slices.size());
  for (uint32_t b = 0; b < plan.blobs.size(); ++b) {
    const BlobRecord& blob = plan.blobs[b];
    const std::string name = printable(plan.string(blob.name));
    KTX_TRY(require(blob.slice_count == 0 || blob.first_slice == next_slice,
                    "weight '{}': its slices begin at {}, expected {}", name, blob.first_slice,
                    next_slice));
    next_slice += blob.slice_count;
    const int64_t rows = blob.rows * blob.matrices;
    const auto row = static_cast<uint64_t>(*row_bytes(static_cast<DType>(blob.dtype), blob.cols));
    int64_t at = 0;
    for (const SliceRecord& slice : plan.slices.subspan(blob.first_slice, blob.slice_count)) {
      KTX_TRY(require(slice.blob == b && slice.tensor < plan.gguf_tensors.size(),
                      "weight '{}': a slice of weight {}, GGUF tensor {} of {}", name, slice.blob,
                      slice.tensor, plan.gguf_tensors.size()));
      KTX_TRY(require(slice.blob_row == at && slice.row_count >= 1 && slice.row_count <= rows - at,
                      "weight '{}': a slice of {} rows at row {}, expected at {} of {}", name,
                      slice.row_count, slice.blob_row, at, rows));
      at += slice.row_count;
      const GgufTensorRecord& tensor = plan.gguf_tensors[slice.tensor];
      if (tensor.dtype != blob.dtype) {
        // Re-quantised: the rows are the tensor's own, in another format.
        KTX_TRY(require(plan.facts.lossy && tensor.row_elems == blob.cols && slice.first_row >= 0 &&
                            slice.first_row <= tensor.rows &&
                            slice.row_count <= tensor.rows - slice.first_row,
                        "weight '{}' is not in the format of its tensor '{}'", name,
                        printable(plan.string(tensor.name))));
        continue;
      }
      const uint64_t tensor_rows = tensor.size / row;
      const int64_t step = row_step(tensor, blob.cols);
      const auto last = static_cast<uint64_t>((slice.row_count - 1) * step + 1);
      KTX_TRY(require(slice.first_row >= 0 &&
                          in_table(static_cast<uint64_t>(slice.first_row), last, tensor_rows),
                      "weight '{}': {} rows from {} of a tensor of {}", name, slice.row_count,
                      slice.first_row, tensor_rows));
      // For columns, rows are counted as if those of each part followed each other.
      const auto first = static_cast<uint64_t>(step == 1 ? slice.first_row
                                                         : slice.first_row % step * tensor.rows +
                                                               slice.first_row / step);
      ranges.push_back({slice.tensor, device_of[b], first * row,
                        (first + static_cast<uint64_t>(slice.row_count)) * row});
    }
    KTX_TRY(require(blob.slice_count == 0 || at == rows,
                    "weight '{}': its slices have {} rows of {}", name, at, rows));
  }
  KTX_TRY(require(next_slice == plan.slices.size(), "{} of {} slices belong to no weight",
                  plan.slices.size() - next_slice, plan.slices.size()));
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.tensor, a.device, a.begin) < std::tie(b.tensor, b.device, b.begin);
  });
  for (size_t i = 1; i < ranges.size(); ++i) {
    KTX_TRY(require(ranges[i].tensor != ranges[i - 1].tensor ||
                        ranges[i].device != ranges[i - 1].device ||
                        ranges[i].begin >= ranges[i - 1].end,
                    "two weights hold the same rows of GGUF tensor '{}'",
                    printable(plan.string(plan.gguf_tensors[ranges[i].tensor].name))));
  }
  return {};
}

Status verify_values(const PlanView& plan) {
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const ValueRecord& value = plan.values[i];
    KTX_TRY(require(is_string(plan, value.name), "value {}: name {} is no string", i, value.name));
    const std::string name = printable(plan.string(value.name));
    KTX_TRY(require(value.type <= static_cast<uint8_t>(ValueType::BF16) &&
                        value.rows <= static_cast<uint8_t>(RowKind::Single),
                    "value '{}': type {}, rows {}", name, value.type, value.rows));
    KTX_TRY(require(in_range(value.width, 1, kMaxDim) &&
                        in_range(value.rows_per_row, 1, kMaxHeads) &&
                        value.width * value.rows_per_row <= kMaxRowElems,
                    "value '{}': {} rows of {} elements", name, value.rows_per_row, value.width));
    KTX_TRY(require(!is_product_input(static_cast<ValueType>(value.type)) || value.width % 32 == 0,
                    "value '{}': {} int8 or BF16 elements are no multiple of 32", name,
                    value.width));
    KTX_TRY(require(value.buffer < plan.buffers.size(), "value '{}': buffer {} of {}", name,
                    value.buffer, plan.buffers.size()));
    const BufferRecord& buffer = plan.buffers[value.buffer];
    const uint64_t room[] = {buffer.bytes_per_token, buffer.bytes_per_output, buffer.fixed_bytes};
    KTX_TRY(require(room[value.rows] >= value_row_bytes(value),
                    "value '{}': a row of {} bytes in a buffer with room for {}", name,
                    value_row_bytes(value), room[value.rows]));
  }
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    const OperandRecord& operand = plan.operands[i];
    if (operand.value == kNone) continue;
    KTX_TRY(require(operand.value < plan.values.size(), "operand {}: value {} of {}", i,
                    operand.value, plan.values.size()));
    const ValueRecord& value = plan.values[operand.value];
    KTX_TRY(require(
        operand.width > 0 && in_table(operand.offset, operand.width,
                                      static_cast<uint64_t>(value.width) * value.rows_per_row),
        "operand {}: elements {} to {} of value '{}' with rows of {}", i, operand.offset,
        uint64_t{operand.offset} + operand.width, printable(plan.string(value.name)),
        value.width * value.rows_per_row));
  }
  return {};
}

Status verify_kv_slots(const PlanView& plan) {
  for (size_t i = 0; i < plan.kv_slots.size(); ++i) {
    const KvSlotRecord& slot = plan.kv_slots[i];
    KTX_TRY(require(is_string(plan, slot.device), "kv slot {}: device {} is no string", i,
                    slot.device));
    KTX_TRY(require(in_range(slot.layer, 0, plan.facts.layers - 1), "kv slot {}: layer {} of {}", i,
                    slot.layer, plan.facts.layers));
    KTX_TRY(require(
        in_range(slot.kv_heads, 1, kMaxHeads) && in_range(slot.key_dim, 1, kMaxDim) &&
            in_range(slot.value_dim, 0, kMaxDim) &&
            in_range(slot.window & kSlotWindowMask, 0, kMaxDim) &&
            in_range(slot.window >> kSlotKindShift, 0, std::ssize(program::kBlockKinds) - 1) &&
            int64_t{slot.kv_heads} * (int64_t{slot.key_dim} + slot.value_dim) <= kMaxKvTokenElems,
        "kv slot {}: {} heads of {} and {} elements, a window of {}", i, slot.kv_heads,
        slot.key_dim, slot.value_dim, slot.window));
  }
  return {};
}

// One record per 64 MiB of each segment, in order.
Status verify_chunks(const PlanView& plan) {
  size_t next = 0;
  for (uint32_t s = 0; s < plan.segments.size(); ++s) {
    const uint64_t count = (plan.segments[s].size + kHashChunkBytes - 1) / kHashChunkBytes;
    for (uint64_t c = 0; c < count; ++c, ++next) {
      KTX_TRY(require(next < plan.chunks.size() && plan.chunks[next].segment == s &&
                          plan.chunks[next].chunk == c,
                      "chunk {} is not chunk {} of segment {}", next, c, s));
    }
  }
  return require(next == plan.chunks.size(), "{} chunks, expected {}", plan.chunks.size(), next);
}

Status verify_source_hashes(const PlanView& plan) {
  return require(plan.source_hashes.empty() || plan.source_hashes.size() == plan.blobs.size(),
                 "{} hashes of sources for {} weights", plan.source_hashes.size(),
                 plan.blobs.size());
}

}  // namespace

uint64_t value_row_bytes(const ValueRecord& value) {
  const int64_t bytes = ktx::value_row_bytes(static_cast<ValueType>(value.type), value.width);
  return static_cast<uint64_t>(bytes) * value.rows_per_row;
}

Status verify_records(const PlanView& plan) {
  KTX_TRY(verify_strings(plan));
  KTX_TRY(verify_gguf(plan));
  KTX_TRY(verify_segments(plan));
  KTX_TRY(verify_slices(plan));
  KTX_TRY(verify_values(plan));
  KTX_TRY(verify_kv_slots(plan));
  KTX_TRY(verify_chunks(plan));
  KTX_TRY(verify_source_hashes(plan));
  return {};
}

}  // namespace ktx::plan
