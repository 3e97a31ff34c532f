// The bytes of a plan's weight segments, assembled from the sources of its blobs.
//
//   BlobAssembler assembler(contents, sources, files);   // one a thread
//   assembler.assemble(segment, offset, out);
//
// Pages of source files are let go once read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_contents.h"
#include "lib/support/mapped_file.h"
#include "lib/support/result.h"

namespace ktx::plan {

inline constexpr uint64_t kMaxGranuleBytes = 1 << 20;

// Fails unless each blob has a source of its size.
Status check_sources(const PlanContents& contents, std::span<const BlobSource> sources);

class BlobAssembler {
 public:
  // The contents have their layout, and the sources are checked; all must outlive it.
  BlobAssembler(const PlanContents& contents, std::span<const BlobSource> sources,
                std::span<const MappedFile* const> files)
      : contents_(contents), sources_(sources), files_(files) {}

  // Fills `out` with the bytes of the file from `offset` on, which are the segment's.
  void assemble(const SegmentRecord& segment, uint64_t offset, std::span<std::byte> out);

 private:
  void fill(uint32_t index, uint64_t offset, std::span<std::byte> out);
  void pack(uint32_t index, uint64_t offset, std::span<std::byte> out);
  const std::byte* edge(uint32_t index, uint64_t begin);
  void copy_rows(const BlobSource& source, uint64_t offset, std::span<std::byte> out);
  void let_go(std::span<const std::byte> range);
  void let_go_now(std::span<const std::byte> range) const;
  void let_go_source(const BlobRecord& blob, const BlobSource& source, uint64_t begin,
                     uint64_t end);

  const PlanContents& contents_;
  std::span<const BlobSource> sources_;
  std::span<const MappedFile* const> files_;
  std::vector<std::byte> edge_;  // granule `edge_begin_` of blob `edge_blob_`
  uint32_t edge_blob_ = kNone;
  uint64_t edge_begin_ = 0;
  std::span<const std::byte> done_;  // of a source, read and not let go of
};

}  // namespace ktx::plan
