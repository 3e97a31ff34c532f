#include "lib/plan/verify_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "lib/plan/chunk_hash.h"
#include "lib/plan/plan_hosts.h"
#include "lib/support/strings.h"
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

}  // namespace

Status verify_weights(const PlanView& plan, int threads) {
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  BlobHashes hashes(plan.blobs);
  std::vector<char> damaged(plan.chunks.size(), 0);
  const auto range_of = [&](const ChunkRecord& chunk) -> ChunkRange {
    const SegmentRecord& segment = plan.segments[chunk.segment];
    const uint64_t begin = uint64_t{chunk.chunk} * kHashChunkBytes;
    return {chunk.segment, segment.offset + begin, std::min(kHashChunkBytes, segment.size - begin)};
  };
  const FetchBytes fetch = [&](uint64_t offset,
                               uint64_t size) -> Result<std::span<const std::byte>> {
    return plan.file.subspan(offset, size);
  };
  ThreadPool pool(std::min(threads, std::max(1, static_cast<int>(plan.chunks.size()))));
  pool.for_each(static_cast<int64_t>(plan.chunks.size()), [&](int64_t i, int) {
    const ChunkRecord& chunk = plan.chunks[i];
    if (!has_weights(plan, plan.segments[chunk.segment])) return;
    const auto hash = hash_chunk(plan.blobs, plan.segments[chunk.segment], range_of(chunk), hashes,
                                 fetch, nullptr);
    damaged[i] = !hash.ok() || !(*hash == chunk.hash);
  });
  for (const SegmentRecord& segment : plan.segments) {
    if (!has_weights(plan, segment)) continue;
    KTX_TRY(check_blobs(plan, segment, hashes));
  }
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    if (!damaged[i]) continue;
    const ChunkRange range = range_of(plan.chunks[i]);
    return Error{fmt::format("the weights at {} to {} are damaged; compile again [KTX-N001]",
                             range.offset, range.offset + range.size)};
  }
  return {};
}

}  // namespace ktx::plan
