#include "lib/plan/pack_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "lib/plan/chunk_hash.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"

namespace ktx::plan {
namespace {

constexpr uint64_t kMaxGranuleBytes = 1 << 20;
constexpr uint64_t kMemoryBudgetBytes = 768 << 20;
constexpr uint64_t kLetGoBytes = 8 << 20;
// More are parts of rows, whose pages another weight reads, too.
constexpr size_t kMostSlicesToLetGo = 1024;

// Whether the source is hashed beside the blob: where both are not the same bytes.
bool has_own_hash(const BlobSource& source) {
  return source.pack && source.packed.empty();
}

// The bytes of one worker: file ranges assembled from sources.
class Assembler {
 public:
  Assembler(const PlanContents& contents, std::span<const BlobSource> sources,
            std::span<const MappedFile* const> files)
      : contents_(contents), sources_(sources), files_(files) {}

  // Fills `out` with the bytes of the file from `offset` on.
  void assemble(const SegmentRecord& segment, uint64_t offset, std::span<std::byte> out) {
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

 private:
  void fill(uint32_t index, uint64_t offset, std::span<std::byte> out) {
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
  void pack(uint32_t index, uint64_t offset, std::span<std::byte> out) {
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
  const std::byte* edge(uint32_t index, uint64_t begin) {
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
  void let_go(std::span<const std::byte> range) {
    if (range.data() == done_.data() + done_.size()) {
      done_ = {done_.data(), done_.size() + range.size()};
      if (done_.size() < kLetGoBytes) return;
      range = {};
    }
    let_go_now(done_);
    done_ = range;
  }

  // Other sources are left alone: memory that is no mapping of a file would lose its contents.
  void let_go_now(std::span<const std::byte> range) const {
    if (range.empty()) return;
    for (const MappedFile* file : files_) {
      const auto bytes = file->bytes();
      if (range.data() < bytes.data() || range.data() >= bytes.data() + bytes.size()) continue;
      file->advise_dont_need(static_cast<size_t>(range.data() - bytes.data()), range.size());
    }
  }

  // A layout without padding made bytes [begin, end) of the same bytes of the source,
  // in another order within granules.
  void let_go_source(const BlobRecord& blob, const BlobSource& source, uint64_t begin,
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

  void copy_rows(const BlobSource& source, uint64_t offset, std::span<std::byte> out) {
    for (const std::span<const std::byte> slice : source.slices) {
      if (out.empty()) return;
      if (offset >= slice.size()) {
        offset -= slice.size();
        continue;
      }
      const auto part =
          slice.subspan(offset, std::min<uint64_t>(out.size(), slice.size() - offset));
      std::memcpy(out.data(), part.data(), part.size());
      let_go(part);
      out = out.subspan(part.size());
      offset = 0;
    }
  }

  const PlanContents& contents_;
  std::span<const BlobSource> sources_;
  std::span<const MappedFile* const> files_;
  std::vector<std::byte> edge_;  // granule `edge_begin_` of blob `edge_blob_`
  uint32_t edge_blob_ = kNone;
  uint64_t edge_begin_ = 0;
  std::span<const std::byte> done_;  // of a source, read and not let go of
};

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

// The hashes of what blobs are made of, where these are other bytes.
class SourceHashes {
 public:
  explicit SourceHashes(std::span<const BlobSource> sources)
      : sources_(sources), hashes_(sizes_of(sources)) {}

  // Hashes the pieces of the sources of the blobs' pieces that begin in the chunk; with a blob's
  // last piece all that is left of its source.
  void add(const PlanContents& contents, const ChunkRange& chunk) {
    const SegmentRecord& segment = contents.segments[chunk.segment];
    const auto pieces = [](uint64_t bytes) {
      return (bytes + kBlobPieceBytes - 1) / kBlobPieceBytes;
    };
    for (uint32_t i = segment.first_blob; i < segment.first_blob + segment.blob_count; ++i) {
      const BlobRecord& blob = contents.blobs[i];
      const uint64_t end = chunk.offset + chunk.size;
      if (!has_own_hash(sources_[i]) || blob.offset >= end) continue;
      if (blob.offset + blob.size <= chunk.offset) continue;
      const uint64_t before = chunk.offset > blob.offset ? pieces(chunk.offset - blob.offset) : 0;
      const uint64_t behind = std::min(pieces(end - blob.offset), pieces(blob.size));
      const uint64_t all = pieces(sources_[i].source_bytes());
      const uint64_t last = behind == pieces(blob.size) && before < behind ? all : behind;
      for (uint64_t piece = before; piece < std::min(last, all); ++piece) add_piece(i, piece);
    }
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

  void add_piece(uint32_t blob, uint64_t piece) {
    hashes_.set(blob, piece, hash_source_piece(sources_[blob].slices, piece));
  }

  std::span<const BlobSource> sources_;
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
    source_hashes_.add(writer_.contents(), chunk);
    if (const auto expected = writer_.journaled_hash(index)) {
      Sha256 digest;
      if (KTX_TRY(walk(chunk, /*from_work_file=*/true, digest)) == *expected) {
        return writer_.finish_chunk(index, *expected, KTX_TRY(digest.digest()));
      }
    }
    Sha256 digest;
    const Hash128 hash = KTX_TRY(walk(chunk, /*from_work_file=*/false, digest));
    for (const MappedFile* file : options_.files) KTX_TRY(file->check());
    return writer_.finish_chunk(index, hash, KTX_TRY(digest.digest()));
  }

 private:
  // Hashes a chunk, either as a killed run left it or from its sources, which
  // also writes it. The tail of a piece behind the chunk always comes from the
  // sources: the next chunk may not be there yet.
  Result<Hash128> walk(const ChunkRange& chunk, bool from_work_file, Sha256& digest) {
    const PlanContents& contents = writer_.contents();
    const SegmentRecord& segment = contents.segments[chunk.segment];
    uint64_t reported = 0;
    const auto fetch = [&](uint64_t offset, uint64_t size) -> Result<std::span<const std::byte>> {
      if (work_.failed) return Error{};  // another worker has said why
      const auto out = std::span(buffer_).first(size);
      if (from_work_file && offset < chunk.offset + chunk.size) {
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
    if (from_work_file && !(hash == *writer_.journaled_hash(index_of(chunk)))) {
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
  Assembler assembler_;
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
  SourceHashes source_hashes(sources);
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
