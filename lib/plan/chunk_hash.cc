#include "lib/plan/chunk_hash.h"

#include <algorithm>
#include <memory>

namespace ktx::plan {
namespace {

uint64_t piece_count(const BlobRecord& blob) {
  return (blob.size + kBlobPieceBytes - 1) / kBlobPieceBytes;
}

// Follows a walk over a chunk and hashes the pieces that begin in it.
class PieceWalk {
 public:
  PieceWalk(std::span<const BlobRecord> blobs, const SegmentRecord& segment,
            const ChunkRange& chunk, BlobHashes& hashes)
      : blobs_(blobs), last_(segment.first_blob + segment.blob_count), hashes_(hashes) {
    // The first blob that ends behind the chunk's start, and its first piece that begins there.
    const auto mine = blobs.subspan(segment.first_blob, segment.blob_count);
    const auto it = std::partition_point(mine.begin(), mine.end(), [&](const BlobRecord& blob) {
      return blob.offset + blob.size <= chunk.offset;
    });
    blob_ = segment.first_blob + static_cast<uint32_t>(it - mine.begin());
    if (blob_ == last_) return;
    if (blobs_[blob_].offset < chunk.offset) {
      piece_ = (chunk.offset - blobs_[blob_].offset + kBlobPieceBytes - 1) / kBlobPieceBytes;
    }
    skip_to_next_blob_at_end();
  }

  // Bytes of the file from `offset`, following those of the call before.
  void add(uint64_t offset, std::span<const std::byte> bytes) {
    const uint64_t end = offset + bytes.size();
    while (blob_ < last_ && begin() < end) {
      const uint64_t from = std::max(begin(), offset);
      const uint64_t to = std::min(this->end(), end);
      if (from == begin()) hasher_ = std::make_unique<Hasher>();
      hasher_->add(bytes.subspan(from - offset, to - from));
      if (to < this->end()) return;
      hashes_.set(blob_, piece_, hasher_->digest());
      hasher_.reset();
      ++piece_;
      skip_to_next_blob_at_end();
    }
  }

  // Where the piece begun last ends, or 0 when none is open.
  uint64_t open_until() const { return hasher_ ? end() : 0; }

 private:
  uint64_t begin() const { return blobs_[blob_].offset + piece_ * kBlobPieceBytes; }
  uint64_t end() const {
    return std::min(begin() + kBlobPieceBytes, blobs_[blob_].offset + blobs_[blob_].size);
  }
  void skip_to_next_blob_at_end() {
    if (piece_ < piece_count(blobs_[blob_])) return;
    ++blob_;
    piece_ = 0;
  }

  std::span<const BlobRecord> blobs_;
  uint32_t last_;
  BlobHashes& hashes_;
  uint32_t blob_ = 0;
  uint64_t piece_ = 0;
  std::unique_ptr<Hasher> hasher_;  // of the piece in progress
};

}  // namespace

BlobHashes::BlobHashes(std::span<const BlobRecord> blobs) {
  uint64_t total = 0;
  for (const BlobRecord& blob : blobs) {
    first_.push_back(total);
    total += piece_count(blob);
  }
  first_.push_back(total);
  pieces_.resize(total);
}

void BlobHashes::set(uint32_t blob, uint64_t piece, const Hash128& hash) {
  pieces_[first_[blob] + piece] = hash;
}

Hash128 BlobHashes::of(uint32_t blob) const {
  const auto pieces = std::span(pieces_).subspan(first_[blob], first_[blob + 1] - first_[blob]);
  return pieces.size() == 1 ? pieces[0] : hash_bytes(std::as_bytes(pieces));
}

Result<Hash128> hash_chunk(std::span<const BlobRecord> blobs, const SegmentRecord& segment,
                           const ChunkRange& chunk, BlobHashes& hashes, const FetchBytes& fetch,
                           const SinkBytes& sink, Sha256* digest) {
  Hasher whole;
  PieceWalk pieces(blobs, segment, chunk, hashes);
  const uint64_t end = chunk.offset + chunk.size;
  for (uint64_t at = chunk.offset; at < end;) {
    const auto bytes = KTX_TRY(fetch(at, std::min(kStepBytes, end - at)));
    whole.add(bytes);
    if (digest) digest->add(bytes);
    pieces.add(at, bytes);
    if (sink) KTX_TRY(sink(at, bytes));
    at += bytes.size();
  }
  for (uint64_t at = end; at < pieces.open_until();) {
    const auto bytes = KTX_TRY(fetch(at, std::min(kStepBytes, pieces.open_until() - at)));
    pieces.add(at, bytes);
    at += bytes.size();
  }
  return whole.digest();
}

}  // namespace ktx::plan
