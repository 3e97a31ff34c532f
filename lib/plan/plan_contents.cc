#include "lib/plan/plan_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "lib/formats/layout_size.h"
#include "lib/formats/shape_text.h"
#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

template <class T>
void append(std::string& out, const T& record) {
  static_assert(std::has_unique_object_representations_v<T>);  // no padding with stray bytes
  out.append(reinterpret_cast<const char*>(&record), sizeof(T));
}

template <class T>
std::string as_bytes(const std::vector<T>& records) {
  return std::string(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(T));
}

std::string gguf_section_bytes(const GgufContents& gguf) {
  std::string out;
  append(out, static_cast<uint32_t>(gguf.shards.size()));
  append(out, static_cast<uint32_t>(gguf.tensors.size()));
  uint64_t offset = out.size() + gguf.shards.size() * sizeof(GgufShardRecord) +
                    gguf.tensors.size() * sizeof(GgufTensorRecord);
  for (const GgufContents::Shard& shard : gguf.shards) {
    append(out, GgufShardRecord{offset, shard.header.size(), shard.file_size, shard.alignment});
    offset += shard.header.size();
  }
  for (const GgufTensorRecord& tensor : gguf.tensors) append(out, tensor);
  for (const GgufContents::Shard& shard : gguf.shards) out += shard.header;
  return out;
}

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

uint64_t pieces_of(uint64_t size) {
  return (size + kHashChunkBytes - 1) / kHashChunkBytes;
}

// Where blobs of one segment lie, from its start; fills in their sizes.
Status lay_out_segment(PlanContents& contents, SegmentRecord& segment) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < segment.blob_count; ++i) {
    BlobRecord& blob = contents.blobs[segment.first_blob + i];
    const std::string_view name = contents.strings[blob.name];
    const auto layout = static_cast<Layout>(blob.layout);
    const auto matrix = matrix_bytes(layout, static_cast<DType>(blob.dtype), blob.rows, blob.cols);
    if (!matrix || blob.rows <= 0 || blob.matrices <= 0) {
      return Error{fmt::format("weight '{}' cannot have the shape {} of {} in layout {}",
                               printable(name), shape_text(blob.cols, blob.rows, blob.matrices),
                               ktx::name(static_cast<DType>(blob.dtype)), ktx::name(layout))};
    }
    const auto bytes =
        checked_mul(static_cast<uint64_t>(*matrix), static_cast<uint64_t>(blob.matrices));
    if (!bytes) return Error{fmt::format("weight '{}' has more than 2^64 bytes", printable(name))};
    blob.size = *bytes;
    size = align_up(size, kBlobAlignment);
    blob.offset = size;
    if (blob.size == 0 || blob.size > (uint64_t{1} << 50) - size) {
      return Error{fmt::format("weight '{}' has {} bytes", printable(name), blob.size)};
    }
    size += blob.size;
  }
  segment.size = size;
  return {};
}

}  // namespace

uint32_t StringTable::intern(std::string_view text) {
  const auto [it, is_new] =
      index_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.emplace_back(text);
  return it->second;
}

std::string StringTable::serialize() const {
  std::string out;
  append(out, static_cast<uint32_t>(texts_.size()));
  append(out, uint32_t{0});
  uint32_t offset = 0;
  for (const std::string& text : texts_) {
    append(out, StringEntry{offset, static_cast<uint32_t>(text.size())});
    offset += static_cast<uint32_t>(text.size());
  }
  for (const std::string& text : texts_) out += text;
  return out;
}

uint32_t PlanContents::add_blob(BlobRecord blob, std::span<const SliceRecord> list) {
  const auto index = static_cast<uint32_t>(blobs.size());
  blob.first_slice = static_cast<uint32_t>(slices.size());
  blob.slice_count = static_cast<uint32_t>(list.size());
  int64_t row = 0;
  for (SliceRecord slice : list) {
    slice.blob = index;
    slice.blob_row = row;
    row += slice.row_count;
    slices.push_back(slice);
  }
  blobs.push_back(blob);
  return index;
}

uint32_t PlanContents::add_constant(uint32_t name, std::span<const float> values) {
  BlobRecord blob = {};
  blob.name = name;
  blob.dtype = static_cast<uint16_t>(DType::F32);
  blob.layout = static_cast<uint16_t>(Layout::Rows);
  blob.rows = 1;
  blob.cols = static_cast<int64_t>(values.size());
  blob.matrices = 1;
  const uint32_t index = add_blob(blob, {});
  const auto bytes = std::as_bytes(values);
  constants[index].assign(bytes.begin(), bytes.end());
  return index;
}

void PlanContents::close_segment(std::string_view device, SegmentKind kind) {
  const uint32_t first =
      segments.empty() ? 0 : segments.back().first_blob + segments.back().blob_count;
  const auto count = static_cast<uint32_t>(blobs.size()) - first;
  if (count == 0) return;
  segments.push_back({strings.intern(device), static_cast<uint32_t>(kind), 0, 0, first, count});
}

uint32_t PlanContents::add_operands(std::span<const OperandRecord> list) {
  const auto first = static_cast<uint32_t>(operands.size());
  operands.insert(operands.end(), list.begin(), list.end());
  return first;
}

uint32_t PlanContents::add_weight_uses(std::span<const uint32_t> list) {
  const auto first = static_cast<uint32_t>(weight_uses.size());
  weight_uses.insert(weight_uses.end(), list.begin(), list.end());
  return first;
}

uint32_t PlanContents::add_attrs(const StepAttrs& value) {
  const auto offset = static_cast<uint32_t>(attrs.size());
  std::visit(
      [&](const auto& fields) {
        attrs.resize(offset + stored_bytes(value));
        std::memcpy(attrs.data() + offset, &fields, attrs.size() - offset);
      },
      value);
  return offset;
}

std::string section_bytes(const PlanContents& contents, SectionId id) {
  switch (id) {
    case SectionId::Strings:
      return contents.strings.serialize();
    case SectionId::Target:
      return to_json(contents.target);
    case SectionId::Facts:
      return to_json(contents.facts);
    case SectionId::GgufHeader:
      return gguf_section_bytes(contents.gguf);
    case SectionId::ModuleGraph:
      return contents.module_graph;
    case SectionId::Segments:
      return as_bytes(contents.segments);
    case SectionId::Blobs:
      return as_bytes(contents.blobs);
    case SectionId::Slices:
      return as_bytes(contents.slices);
    case SectionId::Values:
      return as_bytes(contents.values);
    case SectionId::Buffers:
      return as_bytes(contents.buffers);
    case SectionId::Operands:
      return as_bytes(contents.operands);
    case SectionId::WeightUses:
      return as_bytes(contents.weight_uses);
    case SectionId::Attrs:
      return as_bytes(contents.attrs);
    case SectionId::Steps:
      return as_bytes(contents.steps);
    case SectionId::KvSlots:
      return as_bytes(contents.kv_slots);
    case SectionId::Parts:
      return as_bytes(contents.parts);
    case SectionId::Launches:
      return as_bytes(contents.launches);
    case SectionId::LaunchSteps:
      return as_bytes(contents.launch_steps);
    case SectionId::Tokenizer:
      return contents.tokenizer;
    case SectionId::ChatTemplate:
      return to_json(contents.chat_template);
    case SectionId::Provenance:
      return to_json(contents.provenance);
    case SectionId::DraftTokens:
      return as_bytes(contents.draft_tokens);
    case SectionId::SourceHashes:
      return as_bytes(contents.source_hashes);
    case SectionId::SelfTest:
      return contents.self_test;
    case SectionId::Chunks:
    case SectionId::Digests:
    case SectionId::WeightData:
    case SectionId::Drafter:
    case SectionId::Tower:
      break;
  }
  return {};
}

std::span<const std::byte> inner_plan(const PlanContents& contents, SectionId id) {
  return id == SectionId::Drafter ? contents.drafter
         : id == SectionId::Tower ? contents.tower
                                  : std::span<const std::byte>();
}

Result<PlanLayout> lay_out(PlanContents& contents) {
  uint32_t next_blob = 0;
  for (SegmentRecord& segment : contents.segments) {
    KTX_ASSERT(segment.first_blob == next_blob);
    next_blob += segment.blob_count;
    KTX_ASSERT(next_blob <= contents.blobs.size());
    KTX_TRY(lay_out_segment(contents, segment));
  }
  KTX_ASSERT(next_blob == contents.blobs.size());  // close_segment() after the last blob
  contents.source_hashes.resize(contents.blobs.size());

  PlanLayout layout;
  for (uint32_t s = 0; s < contents.segments.size(); ++s) {
    const uint64_t size = contents.segments[s].size;
    for (uint64_t at = 0; at < size; at += kHashChunkBytes) {
      layout.chunks.push_back({s, at, std::min(kHashChunkBytes, size - at)});
    }
  }

  // Header, then the small sections by number, then the segments and the plans within. The
  // self-test ends the file: all before it is the same without it.
  constexpr SectionId kSmall[] = {
#define KTX_SECTION(id, number, name, element, sentence) SectionId::id,
#include "lib/plan/sections.def"
#undef KTX_SECTION
  };
  constexpr SectionId kInner[] = {SectionId::Drafter, SectionId::Tower};
  const auto is_there = [&](SectionId id) {
    return !is_large(id) && (is_in_every_file(id) || id == SectionId::Digests ||
                             !section_bytes(contents, id).empty());
  };
  const auto small = static_cast<size_t>(std::ranges::count_if(kSmall, is_there));
  const auto inner = static_cast<size_t>(std::ranges::count_if(
      kInner, [&](SectionId id) { return !inner_plan(contents, id).empty(); }));
  const size_t count = small + contents.segments.size() + inner + 1;
  uint64_t at = sizeof(Prefix) + count * sizeof(SectionEntry);
  uint64_t digests = layout.chunks.size() + pieces_of(contents.drafter.size()) +
                     pieces_of(contents.tower.size()) +
                     std::max<uint64_t>(pieces_of(contents.self_test.size()), 1);
  for (SectionId id : kSmall) {  // 'digests', which counts all others, is the last
    if (!is_there(id)) continue;
    const uint64_t size = id == SectionId::Chunks    ? layout.chunks.size() * sizeof(ChunkRecord)
                          : id == SectionId::Digests ? digests * sizeof(DigestRecord)
                                                     : section_bytes(contents, id).size();
    digests += pieces_of(size);
    at = align_up(at, kSectionAlignment);
    const uint32_t flags = is_required(id) ? uint32_t{kRequired} : 0;
    layout.sections.push_back({static_cast<uint32_t>(id), flags, at, size, {}, 0});
    at += size;
  }
  for (SegmentRecord& segment : contents.segments) {
    at = align_up(at,
                  segment.size > kLargeSegmentBytes ? kLargeSegmentAlignment : kSegmentAlignment);
    segment.offset = at;
    for (uint32_t i = 0; i < segment.blob_count; ++i) {
      contents.blobs[segment.first_blob + i].offset += at;
    }
    layout.sections.push_back(
        {static_cast<uint32_t>(SectionId::WeightData), kRequired, at, segment.size, {}, 0});
    at += segment.size;
  }
  for (const SectionId id : kInner) {  // each is mapped by itself
    const uint64_t size = inner_plan(contents, id).size();
    if (size == 0) continue;
    at = align_up(at, size > kLargeSegmentBytes ? kLargeSegmentAlignment : kSegmentAlignment);
    layout.inner_offsets[id] = at;
    layout.sections.push_back({static_cast<uint32_t>(id), kRequired, at, size, {}, 0});
    at += size;
  }
  at = align_up(at, kSectionAlignment);
  layout.self_test_offset = at;
  layout.sections.push_back(
      {static_cast<uint32_t>(SectionId::SelfTest), 0, at, contents.self_test.size(), {}, 0});
  at += contents.self_test.size();
  for (ChunkRange& chunk : layout.chunks) chunk.offset += contents.segments[chunk.segment].offset;
  layout.file_bytes = at;
  return layout;
}

}  // namespace ktx::plan
