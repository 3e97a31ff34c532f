#include "lib/plan/verify_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/plan/chunk_hash.h"
#include "lib/plan/digests.h"
#include "lib/plan/plan_hosts.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"

namespace ktx::plan {

namespace {

Status check_blobs(const PlanView& plan, const SegmentRecord& segment, BlobHashes& hashes) {
  for (uint32_t b = segment.first_blob; b < segment.first_blob + segment.blob_count; ++b) {
    const BlobRecord& blob = plan.blobs[b];
    if (hashes.of(b) == blob.hash) continue;
    return Error{fmt::format("weight '{}' ({} bytes at {}) is damaged; compile again [KTX-N001]",
                             printable(plan.string(blob.name)), blob.size, blob.offset)};
  }
  return {};
}

// What is checked at once: a chunk of a segment, or of a plan within and the self-test.
struct Piece {
  const ChunkRecord* chunk;  // null: of a plan within, of the self-test
  uint64_t offset, size;     // in the file
  const DigestRecord* digest;
};

Result<std::vector<Piece>> pieces_of(const PlanView& plan) {
  std::vector<Piece> pieces;
  for (const ChunkRecord& chunk : plan.chunks) {
    const SegmentRecord& segment = plan.segments[chunk.segment];
    const uint64_t begin = uint64_t{chunk.chunk} * kHashChunkBytes;
    pieces.push_back(
        {&chunk, segment.offset + begin, std::min(kHashChunkBytes, segment.size - begin), nullptr});
  }
  if (plan.digests.empty()) return pieces;
  const std::vector<DigestPiece> all = KTX_TRY(digest_pieces(plan));
  size_t chunk = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const SectionEntry& section = plan.sections[all[i].section];
    if (section.id == static_cast<uint32_t>(SectionId::WeightData)) {
      pieces[chunk++].digest = &plan.digests[i];
    } else if (is_large(static_cast<SectionId>(section.id)) && plan.part_of.value_or(0) == 0) {
      pieces.push_back({nullptr, section.offset + all[i].begin, all[i].size, &plan.digests[i]});
    }
  }
  return pieces;
}

Status check_piece(const PlanView& plan, const Piece& piece, BlobHashes& hashes) {
  const std::string place = fmt::format("{} to {}", piece.offset, piece.offset + piece.size);
  Sha256 digest;
  if (piece.chunk) {
    const SegmentRecord& segment = plan.segments[piece.chunk->segment];
    if (!has_weights(plan, segment)) return {};
    const FetchBytes fetch = [&](uint64_t offset,
                                 uint64_t size) -> Result<std::span<const std::byte>> {
      return plan.file.subspan(offset, size);
    };
    const Hash128 hash =
        KTX_TRY(hash_chunk(plan.blobs, segment, {piece.chunk->segment, piece.offset, piece.size},
                           hashes, fetch, nullptr, piece.digest ? &digest : nullptr));
    if (!(hash == piece.chunk->hash)) {
      return Error{fmt::format("the weights at {} are damaged; compile again [KTX-N001]", place)};
    }
  } else {
    digest.add(plan.file.subspan(piece.offset, piece.size));
  }
  if (!piece.digest || KTX_TRY(digest.digest()) == *piece.digest) return {};
  return Error{
      fmt::format("the weights at {} have another SHA-256 than the plan says: they were "
                  "changed",
                  place)};
}

}  // namespace

Status verify_weights(const PlanView& plan, int threads, const std::atomic<bool>* stop) {
  BlobHashes hashes(plan.blobs);
  const std::vector<Piece> pieces = KTX_TRY(pieces_of(plan));
  std::vector<Status> found(pieces.size());
  ThreadPool pool(std::min(thread_count(threads), std::max(1, static_cast<int>(pieces.size()))));
  pool.for_each(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
    if (!stop || !*stop) found[i] = check_piece(plan, pieces[i], hashes);
  });
  if (stop && *stop) return {};
  for (const SegmentRecord& segment : plan.segments) {
    if (!has_weights(plan, segment)) continue;
    KTX_TRY(check_blobs(plan, segment, hashes));
  }
  for (const Status& status : found) KTX_TRY(status);
  return {};
}

}  // namespace ktx::plan
