// For tests that change the bytes of a plan: its header as structs, corrected hashes, a file in
// memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/plan/device_memory.h"
#include "lib/plan/digests.h"
#include "lib/plan/plan_format.h"
#include "lib/plan/plan_reader.h"

namespace ktx::plan {

inline std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Prefix& prefix(std::vector<std::byte>& bytes) {
  return *reinterpret_cast<Prefix*>(bytes.data());
}

// The section table; empty when the count has been made nonsense.
inline std::span<SectionEntry> sections(std::vector<std::byte>& bytes) {
  const uint64_t room = (bytes.size() - sizeof(Prefix)) / sizeof(SectionEntry);
  const uint64_t count = prefix(bytes).section_count <= room ? prefix(bytes).section_count : 0;
  return {reinterpret_cast<SectionEntry*>(bytes.data() + sizeof(Prefix)), count};
}

inline SectionEntry* find_section(std::vector<std::byte>& bytes, SectionId id) {
  for (SectionEntry& section : sections(bytes)) {
    if (section.id == static_cast<uint32_t>(id)) return &section;
  }
  return nullptr;
}
inline const SectionEntry* find_section(const std::vector<std::byte>& bytes, SectionId id) {
  return find_section(const_cast<std::vector<std::byte>&>(bytes), id);
}

// Hashes of all sections and of the header, for the bytes as they are now.
inline void fix_hashes(std::vector<std::byte>& bytes) {
  for (SectionEntry& section : sections(bytes)) {
    if (section.id == static_cast<uint32_t>(SectionId::WeightData)) continue;
    if (section.offset > bytes.size() || section.size > bytes.size() - section.offset) continue;
    section.hash = hash_bytes(std::span(bytes).subspan(section.offset, section.size));
  }
  const uint64_t header = std::min<uint64_t>(prefix(bytes).header_bytes, bytes.size());
  prefix(bytes).header_hash = {};
  prefix(bytes).header_hash = hash_bytes(std::span(bytes).first(header));
}

// Hashes of chunks and blobs, for the weights as they are now; blobs of at most kBlobPieceBytes.
inline void fix_weight_hashes(std::vector<std::byte>& bytes) {
  const auto records = [&]<class T>(SectionId id, T) {
    const SectionEntry* section = find_section(bytes, id);
    return std::span(reinterpret_cast<T*>(bytes.data() + section->offset),
                     section->size / sizeof(T));
  };
  const auto segments = records(SectionId::Segments, SegmentRecord());
  const auto hash_at = [&](uint64_t offset, uint64_t size, Hash128& hash) {
    if (offset > bytes.size() || size > bytes.size() - offset) return;
    hash = hash_bytes(std::span(bytes).subspan(offset, size));
  };
  for (ChunkRecord& chunk : records(SectionId::Chunks, ChunkRecord())) {
    if (chunk.segment >= segments.size()) continue;
    hash_at(segments[chunk.segment].offset, segments[chunk.segment].size, chunk.hash);
  }
  for (BlobRecord& blob : records(SectionId::Blobs, BlobRecord())) {
    hash_at(blob.offset, blob.size, blob.hash);
  }
}

// Digests of all sections, for the bytes as they are now.
inline void fix_digests(std::vector<std::byte>& bytes) {
  uint64_t at = find_section(bytes, SectionId::Digests)->offset;
  for (const DigestPiece& piece : digest_pieces(sections(bytes))) {
    const uint64_t offset = sections(bytes)[piece.section].offset + piece.begin;
    const DigestRecord digest = *sha256(std::span(bytes).subspan(offset, piece.size));
    std::memcpy(bytes.data() + at, digest.data(), digest.size());
    at += digest.size();
  }
}

// The plan as a compiler of format 3.`minor` wrote it. Records are those of all versions of 3; what
// came later are sections: draft-tokens with 3.4; digests, source-hashes and self-test, which ends
// the file, with 3.7.
inline std::vector<std::byte> as_format(std::vector<std::byte> bytes, uint16_t minor) {
  std::vector<SectionEntry> kept;
  for (const SectionEntry& section : sections(bytes)) {
    const auto id = static_cast<SectionId>(section.id);
    const bool of_7 =
        id == SectionId::Digests || id == SectionId::SourceHashes || id == SectionId::SelfTest;
    if ((of_7 && minor < 7) || (id == SectionId::DraftTokens && minor < 4)) {
      std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(section.offset), section.size,
                  std::byte{0});
    } else {
      kept.push_back(section);
    }
  }
  uint64_t end = 0;
  for (const SectionEntry& section : kept) end = std::max(end, section.offset + section.size);
  bytes.resize(end);
  prefix(bytes).file_bytes = end;
  const auto all = sections(bytes);
  std::fill(all.begin(), all.end(), SectionEntry());
  std::copy(kept.begin(), kept.end(), all.begin());
  prefix(bytes).minor = minor;
  prefix(bytes).section_count = static_cast<uint32_t>(kept.size());
  prefix(bytes).header_bytes =
      static_cast<uint32_t>(sizeof(Prefix) + kept.size() * sizeof(SectionEntry));
  fix_hashes(bytes);
  return bytes;
}

// The plan with one more section at its end. The new table entry goes into the
// padding behind the table or, when there is none, moves nothing: the tiny plan
// has room because its table's end is padded to 64 bytes.
inline std::vector<std::byte> with_extra_section(const std::vector<std::byte>& bytes, uint32_t id,
                                                 uint32_t flags, std::string_view text) {
  // Everything behind the header moves by one segment alignment.
  const uint64_t shift = kSegmentAlignment;
  auto old = bytes;
  const uint64_t header = prefix(old).header_bytes;
  std::vector<std::byte> out(old.begin(), old.begin() + static_cast<ptrdiff_t>(header));
  out.resize(header + sizeof(SectionEntry));
  const uint64_t first = find_section(old, SectionId::Strings)->offset;
  out.resize(first + shift);
  out.insert(out.end(), old.begin() + static_cast<ptrdiff_t>(first), old.end());
  out.resize((out.size() + 63) / 64 * 64);
  const uint64_t at = out.size();
  const auto extra = std::as_bytes(std::span(text));
  out.insert(out.end(), extra.begin(), extra.end());

  prefix(out).section_count += 1;
  prefix(out).header_bytes += sizeof(SectionEntry);
  prefix(out).file_bytes = out.size();
  for (SectionEntry& section : sections(out)) section.offset += shift;
  sections(out).back() = {id, flags, at, text.size(), {}, 0};
  const SectionEntry segments = *find_section(out, SectionId::Segments);
  for (uint64_t i = 0; i < segments.size; i += sizeof(SegmentRecord)) {
    reinterpret_cast<SegmentRecord*>(out.data() + segments.offset + i)->offset += shift;
  }
  const SectionEntry blobs = *find_section(out, SectionId::Blobs);
  for (uint64_t i = 0; i < blobs.size; i += sizeof(BlobRecord)) {
    reinterpret_cast<BlobRecord*>(out.data() + blobs.offset + i)->offset += shift;
  }
  // The padding behind the digests has room for one more.
  find_section(out, SectionId::Digests)->size += sizeof(DigestRecord);
  fix_hashes(out);
  fix_digests(out);
  fix_hashes(out);
  return out;
}

// A file without a disk, by a path that programs can open.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("plan", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void set(std::span<const std::byte> bytes) {
    resize(bytes.size());
    if (pwrite(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) abort();
  }
  void poke(uint64_t at, std::byte value) {
    if (pwrite(fd_, &value, 1, static_cast<off_t>(at)) != 1) abort();
  }
  void resize(uint64_t size) {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) abort();
  }

 private:
  int fd_;
};

// Uses an opened plan as a runtime would: follows every index, reads every byte
// that a record points at. Gives a number so that nothing is optimised away.
inline uint64_t touch_everything(const PlanView& plan) {
  uint64_t sum = 0;
  const auto touch = [&](std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) sum += static_cast<uint64_t>(b);
  };
  const auto text = [&](std::string_view view) { touch(std::as_bytes(std::span(view))); };
  for (const SegmentRecord& segment : plan.segments) {
    text(plan.string(segment.device));
    touch(plan.file.subspan(segment.offset, segment.size));
  }
  for (uint32_t b = 0; b < plan.blobs.size(); ++b) {
    text(plan.string(plan.blobs[b].name));
    touch(plan.blob_bytes(b));
  }
  for (const ValueRecord& value : plan.values) {
    text(plan.string(value.name));
    sum += plan.buffers[value.buffer].bytes_per_token;
  }
  for (const StepRecord& step : plan.steps) {
    text(plan.string(step.module));
    text(plan.string(step.device));
    for (uint32_t kernel : step.kernel) text(plan.string_or_empty(kernel));
    touch(plan.attrs.subspan(step.attrs_offset, step.attrs_size));
    for (const OperandRecord& in : plan.inputs(step)) {
      if (in.value != kNone) sum += plan.values[in.value].width;
    }
    for (const OperandRecord& out : plan.outputs(step)) sum += plan.values[out.value].width;
    for (uint32_t blob : plan.weights(step)) {
      if (blob != kNone) touch(plan.blob_bytes(blob).first(1));
    }
  }
  for (const PartRecord& part : plan.parts) {
    text(plan.string(part.device));
    sum += plan.steps[part.first_step + part.step_count - 1].op;
  }
  for (const LaunchRecord& launch : plan.launches) {
    text(plan.string(launch.kernel));
    for (uint32_t step : plan.launch_steps.subspan(launch.first_step, launch.step_count)) {
      sum += plan.steps[step].op;
    }
  }
  for (const GgufShardRecord& shard : plan.gguf_shards) {
    touch(plan.gguf_section.subspan(shard.header_offset, shard.header_size));
  }
  touch(plan.tokenizer);
  text(plan.module_graph);
  const auto estimate = estimate_memory(plan, {});
  return sum + (estimate.ok() ? estimate->total_bytes : 0);
}

}  // namespace ktx::plan
