// Hashes weights while they stream: each chunk of a segment, and each blob. Packer and verifier
// share the walk:
//
//   BlobHashes hashes(blobs);
//   Hash128 hash = KTX_TRY(hash_chunk(blobs_of_segment, chunk, hashes, fetch, nullptr, nullptr));
//   ... all chunks, in any order, on any thread ...
//   hashes.of(blob)
//
// A blob's piece (kBlobPieceBytes from its start) belongs to the chunk it begins in. If it
// continues in the next chunk, the walk fetches the rest as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/plan/plan_contents.h"
#include "lib/support/hash.h"
#include "lib/support/result.h"
#include "lib/support/sha256.h"

namespace ktx::plan {

// Hashes of the pieces of all blobs. Different pieces may be set from different
// threads at once.
class BlobHashes {
 public:
  explicit BlobHashes(std::span<const BlobRecord> blobs);
  void set(uint32_t blob, uint64_t piece, const Hash128& hash);
  Hash128 of(uint32_t blob) const;  // once all its pieces are set

 private:
  std::vector<uint64_t> first_;  // first piece of each blob
  std::vector<Hash128> pieces_;
};

// Gives bytes [offset, offset + size) of the file; size is at most kStepBytes. The
// view lives until the next call. A step is a whole huge page: file systems that keep files
// in large folios (ext4 since Linux 6.16, xfs) then hold a plan just written in huge pages,
// which every mapping of it gets without a copy.
inline constexpr uint64_t kStepBytes = 2 << 20;
static_assert(kLargeSegmentAlignment % kStepBytes == 0 && kHashChunkBytes % kStepBytes == 0);
using FetchBytes =
    std::function<Result<std::span<const std::byte>>(uint64_t offset, uint64_t size)>;
// Called for every step of the chunk itself, in order.
using SinkBytes = std::function<Status(uint64_t offset, std::span<const std::byte> bytes)>;

// `blobs`: all of the plan; [first_blob, first_blob + blob_count) are those of the
// chunk's segment, in order of offset and without overlap.
// `digest` gets the chunk's bytes, too, where it is not null.
Result<Hash128> hash_chunk(std::span<const BlobRecord> blobs, const SegmentRecord& segment,
                           const ChunkRange& chunk, BlobHashes& hashes, const FetchBytes& fetch,
                           const SinkBytes& sink, Sha256* digest);

}  // namespace ktx::plan
