#include "lib/plan/pack_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "lib/plan/blob_assembler.h"
#include "lib/plan/chunk_hash.h"
#include "lib/plan/unpack_layout.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"

namespace ktx::plan {
namespace {

constexpr uint64_t kMemoryBudgetBytes = 768 << 20;

// Whether the source is hashed beside the blob: where both are not the same bytes.
bool has_own_hash(const BlobSource& source) {
  return source.pack && source.packed.empty();
}

// The hashes of what blobs are made of, where these are other bytes.
class SourceHashes {
 public:
  SourceHashes(const PlanContents& contents, std::span<const BlobSource> sources,
               const MappedFile* moved)
      : contents_(contents), sources_(sources), moved_(moved), hashes_(sizes_of(sources)) {}

  // Hashes the pieces of the sources of the blobs' pieces that begin in the chunk; with a blob's
  // last piece all that is left of its source.
  Status add(const ChunkRange& chunk) {
    const SegmentRecord& segment = contents_.segments[chunk.segment];
    const auto pieces = [](uint64_t bytes) {
      return (bytes + kBlobPieceBytes - 1) / kBlobPieceBytes;
    };
    for (uint32_t i = segment.first_blob; i < segment.first_blob + segment.blob_count; ++i) {
      const BlobRecord& blob = contents_.blobs[i];
      const uint64_t end = chunk.offset + chunk.size;
      if (!has_own_hash(sources_[i]) || blob.offset >= end) continue;
      if (blob.offset + blob.size <= chunk.offset) continue;
      const uint64_t before = chunk.offset > blob.offset ? pieces(chunk.offset - blob.offset) : 0;
      const uint64_t behind = std::min(pieces(end - blob.offset), pieces(blob.size));
      const uint64_t all = pieces(sources_[i].source_bytes());
      const uint64_t last = behind == pieces(blob.size) && before < behind ? all : behind;
      for (uint64_t piece = before; piece < std::min(last, all); ++piece) {
        KTX_TRY(add_piece(i, piece));
      }
    }
    return {};
  }
  Hash128 of(uint32_t blob) const { return hashes_.of(blob); }

 private:
  static std::vector<BlobRecord> sizes_of(std::span<const BlobSource> sources) {
    std::vector<BlobRecord> sizes(sources.size());
    for (size_t i = 0; i < sources.size(); ++i) {
      if (has_own_hash(sources[i])) sizes[i].size = sources[i].source_bytes();
    }
    return sizes;
  }

  Status add_piece(uint32_t blob, uint64_t piece) {
    if (moved_ == nullptr) {
      hashes_.set(blob, piece, hash_source_piece(sources_[blob].slices, piece));
      return {};
    }
    const BlobRecord& record = contents_.blobs[blob];
    const uint64_t begin = piece * kBlobPieceBytes;
    std::vector<std::byte> bytes(
        std::min<uint64_t>(kBlobPieceBytes, sources_[blob].source_bytes() - begin));
    KTX_TRY(
        unpack_layout(record, moved_->bytes().subspan(record.offset, record.size), begin, bytes));
    hashes_.set(blob, piece, hash_bytes(bytes));
    return {};
  }

  const PlanContents& contents_;
  std::span<const BlobSource> sources_;
  const MappedFile* moved_;
  BlobHashes hashes_;
};

// What all workers share.
struct Work {
  std::mutex mutex;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  std::atomic<bool> failed = false;
  Error error;

  void fail(const Error& first) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) error = first;
  }
};

class Worker {
 public:
  Worker(PlanWriter& writer, std::span<const BlobSource> sources, const PackOptions& options,
         BlobHashes& hashes, SourceHashes& source_hashes, Work& work)
      : writer_(writer),
        options_(options),
        hashes_(hashes),
        source_hashes_(source_hashes),
        work_(work),
        assembler_(writer.contents(), sources, options.files),
        buffer_(kStepBytes) {}

  Status pack(size_t index) {
    const ChunkRange& chunk = writer_.layout().chunks[index];
    KTX_TRY(source_hashes_.add(chunk));
    if (const auto expected = writer_.journaled_hash(index)) {
      Sha256 digest;
      if (KTX_TRY(walk(chunk, /*from_work_file=*/true, digest)) == *expected) {
        return writer_.finish_chunk(index, *expected, KTX_TRY(digest.digest()));
      }
    }
    Sha256 digest;
    const Hash128 hash = KTX_TRY(walk(chunk, /*from_work_file=*/options_.moved != nullptr, digest));
    for (const MappedFile* file : options_.files) KTX_TRY(file->check());
    return writer_.finish_chunk(index, hash, KTX_TRY(digest.digest()));
  }

 private:
  // Hashes a chunk, either as it is in the work file or from its sources, which
  // also writes it. The tail of a piece behind the chunk comes from the sources where
  // the next chunk may not be there yet.
  Result<Hash128> walk(const ChunkRange& chunk, bool from_work_file, Sha256& digest) {
    const PlanContents& contents = writer_.contents();
    const SegmentRecord& segment = contents.segments[chunk.segment];
    uint64_t reported = 0;
    const auto fetch = [&](uint64_t offset, uint64_t size) -> Result<std::span<const std::byte>> {
      if (work_.failed) return Error{};  // another worker has said why
      const auto out = std::span(buffer_).first(size);
      const bool in_chunk = offset < chunk.offset + chunk.size;
      if (from_work_file && (in_chunk || options_.moved != nullptr)) {
        KTX_TRY(writer_.read(offset, out));
      } else {
        assembler_.assemble(segment, offset, out);
      }
      return std::span<const std::byte>(out);
    };
    const auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
      if (!from_work_file) KTX_TRY(writer_.write(offset, bytes));
      reported += bytes.size();
      report(bytes.size());
      return {};
    };
    const Hash128 hash =
        KTX_TRY(hash_chunk(contents.blobs, segment, chunk, hashes_, fetch, sink, &digest));
    const auto expected = writer_.journaled_hash(index_of(chunk));
    if (from_work_file && expected && !(hash == *expected)) {
      report(-static_cast<int64_t>(reported));  // to be done again
    }
    return hash;
  }

  size_t index_of(const ChunkRange& chunk) const {
    return static_cast<size_t>(&chunk - writer_.layout().chunks.data());
  }

  void report(int64_t bytes) {
    const std::lock_guard lock(work_.mutex);
    work_.done_bytes += static_cast<uint64_t>(bytes);
    if (options_.progress) options_.progress(work_.done_bytes, work_.total_bytes);
  }

  PlanWriter& writer_;
  const PackOptions& options_;
  BlobHashes& hashes_;
  SourceHashes& source_hashes_;
  Work& work_;
  BlobAssembler assembler_;
  std::vector<std::byte> buffer_;  // of one step
};

}  // namespace

Hash128 hash_source_piece(std::span<const std::span<const std::byte>> slices, uint64_t piece) {
  uint64_t skip = piece * kBlobPieceBytes, left = kBlobPieceBytes;
  Hasher hasher;
  for (std::span<const std::byte> slice : slices) {
    const uint64_t skipped = std::min<uint64_t>(skip, slice.size());
    skip -= skipped;
    const auto part = slice.subspan(skipped, std::min<uint64_t>(left, slice.size() - skipped));
    hasher.add(part);
    left -= part.size();
  }
  return hasher.digest();
}

Status pack_blobs(PlanWriter& writer, std::span<const BlobSource> sources,
                  const PackOptions& options) {
  const PlanContents& contents = writer.contents();
  KTX_TRY(check_sources(contents, sources));
  const auto& chunks = writer.layout().chunks;

  // A worker has a step, twice while it is written (work_file.h), a granule and what a packer
  // may need.
  constexpr uint64_t kWorkerBytes = 2 * kStepBytes + 3 * kMaxGranuleBytes;
  int threads = std::clamp(thread_count(options.threads), 1,
                           static_cast<int>(kMemoryBudgetBytes / kWorkerBytes));
  threads = std::min(threads, std::max(1, static_cast<int>(chunks.size())));

  Work work;
  for (const ChunkRange& chunk : chunks) work.total_bytes += chunk.size;
  BlobHashes hashes(contents.blobs);
  SourceHashes source_hashes(contents, sources, options.moved);
  ThreadPool pool(threads);
  std::vector<std::unique_ptr<Worker>> workers(pool.threads());
  for (auto& worker : workers) {
    worker = std::make_unique<Worker>(writer, sources, options, hashes, source_hashes, work);
  }
  pool.for_each(static_cast<int64_t>(chunks.size()), [&](int64_t chunk, int thread) {
    if (work.failed) return;
    const Status status = workers[thread]->pack(static_cast<size_t>(chunk));
    if (!status.ok()) work.fail(status.error());
  });
  if (work.failed) return work.error;
  for (uint32_t blob = 0; blob < contents.blobs.size(); ++blob) {
    const BlobSource& source = sources[blob];
    const Hash128 hash = hashes.of(blob);
    const bool reused = !source.packed.empty();
    if (reused && !(hash == source.packed_hash)) {
      return Error{fmt::format("weight '{}' of the plan to reuse is damaged; compile without it",
                               printable(contents.strings[contents.blobs[blob].name]))};
    }
    const Hash128 same = contents.blobs[blob].slice_count == 0 ? Hash128{} : hash;
    writer.set_hashes(blob, hash,
                      reused                 ? source.source_hash
                      : has_own_hash(source) ? source_hashes.of(blob)
                                             : same);
  }
  return {};
}

}  // namespace ktx::plan
