#include "lib/plan/blob_assembler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

constexpr uint64_t kLetGoBytes = 8 << 20;
// More are parts of rows, whose pages another weight reads, too.
constexpr size_t kMostSlicesToLetGo = 1024;

}  // namespace

Status check_sources(const PlanContents& contents, std::span<const BlobSource> sources) {
  KTX_ASSERT(sources.size() == contents.blobs.size());
  for (uint32_t i = 0; i < sources.size(); ++i) {
    const BlobRecord& blob = contents.blobs[i];
    const BlobSource& source = sources[i];
    KTX_ASSERT(source.slices.size() >= blob.slice_count);
    KTX_ASSERT(source.packed.empty() || source.packed.size() == blob.size);
    KTX_ASSERT(source.granule_bytes >= 1 && source.granule_bytes <= kMaxGranuleBytes);
    uint64_t have = 0;
    if (blob.slice_count == 0) {
      const auto constant = contents.constants.find(i);
      have = constant == contents.constants.end() ? 0 : constant->second.size();
    } else if (!source.pack && source.packed.empty()) {
      have = source.source_bytes();
    } else {
      have = blob.size;
    }
    if (have != blob.size) {
      return Error{fmt::format("weight '{}': its source has {} bytes, expected {}",
                               printable(contents.strings[blob.name]), have, blob.size)};
    }
  }
  return {};
}

void BlobAssembler::assemble(const SegmentRecord& segment, uint64_t offset,
                             std::span<std::byte> out) {
  const uint64_t size = out.size();
  const auto blobs = std::span(contents_.blobs).subspan(segment.first_blob, segment.blob_count);
  auto blob = std::partition_point(blobs.begin(), blobs.end(), [&](const BlobRecord& record) {
    return record.offset + record.size <= offset;
  });
  uint64_t at = offset;
  for (; blob != blobs.end() && blob->offset < offset + size; ++blob) {
    if (blob->offset > at) {
      std::memset(out.data() + (at - offset), 0, blob->offset - at);
      at = blob->offset;
    }
    const uint64_t end = std::min(offset + size, blob->offset + blob->size);
    const auto index = segment.first_blob + static_cast<uint32_t>(blob - blobs.begin());
    fill(index, at - blob->offset, out.subspan(at - offset, end - at));
    at = end;
  }
  std::memset(out.data() + (at - offset), 0, offset + size - at);
}

void BlobAssembler::fill(uint32_t index, uint64_t offset, std::span<std::byte> out) {
  const BlobRecord& blob = contents_.blobs[index];
  const BlobSource& source = sources_[index];
  if (blob.slice_count == 0) {
    std::memcpy(out.data(), contents_.constants.at(index).data() + offset, out.size());
  } else if (!source.packed.empty()) {
    const auto part = source.packed.subspan(offset, out.size());
    std::memcpy(out.data(), part.data(), part.size());
    let_go(part);
  } else if (!source.pack) {
    copy_rows(source, offset, out);
  } else {
    pack(index, offset, out);
  }
}

// Whole granules go where they belong; of those at both ends a part is copied.
void BlobAssembler::pack(uint32_t index, uint64_t offset, std::span<std::byte> out) {
  const BlobRecord& blob = contents_.blobs[index];
  const BlobSource& source = sources_[index];
  const uint64_t granule = source.granule_bytes, end = offset + out.size();
  for (uint64_t at = offset; at < end;) {
    const uint64_t begin = at / granule * granule;
    const uint64_t whole = end == blob.size ? end : end / granule * granule;
    uint64_t to = whole;
    if (at == begin && whole > at) {
      source.pack(source.slices, at, out.subspan(at - offset, whole - at));
      let_go_source(blob, source, at, whole);
    } else {
      to = std::min(end, begin + granule);
      std::memcpy(out.data() + (at - offset), edge(index, begin) + (at - begin), to - at);
    }
    at = to;
  }
}

// One granule. The next step begins with the one that this step ended in.
const std::byte* BlobAssembler::edge(uint32_t index, uint64_t begin) {
  const BlobRecord& blob = contents_.blobs[index];
  const BlobSource& source = sources_[index];
  if (edge_blob_ == index && edge_begin_ == begin) return edge_.data();
  edge_.resize(std::min(source.granule_bytes, blob.size - begin));
  source.pack(source.slices, begin, edge_);
  let_go_source(blob, source, begin, begin + edge_.size());
  edge_blob_ = index;
  edge_begin_ = begin;
  return edge_.data();
}

// Pages of source files are not needed again. They are let go of some MiB at a time:
// each time all threads are interrupted.
void BlobAssembler::let_go(std::span<const std::byte> range) {
  if (range.data() == done_.data() + done_.size()) {
    done_ = {done_.data(), done_.size() + range.size()};
    if (done_.size() < kLetGoBytes) return;
    range = {};
  }
  let_go_now(done_);
  done_ = range;
}

// Other sources are left alone: memory that is no mapping of a file would lose its contents.
void BlobAssembler::let_go_now(std::span<const std::byte> range) const {
  if (range.empty()) return;
  for (const MappedFile* file : files_) {
    const auto bytes = file->bytes();
    if (range.data() < bytes.data() || range.data() >= bytes.data() + bytes.size()) continue;
    file->advise_dont_need(static_cast<size_t>(range.data() - bytes.data()), range.size());
  }
}

// A layout without padding made bytes [begin, end) of the same bytes of the source,
// in another order within granules.
void BlobAssembler::let_go_source(const BlobRecord& blob, const BlobSource& source, uint64_t begin,
                                  uint64_t end) {
  if (source.slices.size() > kMostSlicesToLetGo || source.source_bytes() != blob.size) return;
  uint64_t at = 0;
  for (const auto slice : source.slices) {
    const uint64_t from = std::clamp(begin, at, at + slice.size()) - at;
    const uint64_t to = std::clamp(end, at, at + slice.size()) - at;
    if (to > from) let_go(slice.subspan(from, to - from));
    at += slice.size();
  }
}

void BlobAssembler::copy_rows(const BlobSource& source, uint64_t offset, std::span<std::byte> out) {
  for (const std::span<const std::byte> slice : source.slices) {
    if (out.empty()) return;
    if (offset >= slice.size()) {
      offset -= slice.size();
      continue;
    }
    const auto part = slice.subspan(offset, std::min<uint64_t>(out.size(), slice.size() - offset));
    std::memcpy(out.data(), part.data(), part.size());
    let_go(part);
    out = out.subspan(part.size());
    offset = 0;
  }
}

}  // namespace ktx::plan
