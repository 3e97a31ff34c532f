#include "lib/plan/move_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/plan/blob_assembler.h"
#include "lib/plan/chunk_hash.h"
#include "lib/plan/release_order.h"
#include "lib/plan/tensor_parts.h"
#include "lib/plan/unpack_layout.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"

namespace ktx::plan {
namespace {

constexpr uint64_t kWindows = 256;  // two syncs each
constexpr uint64_t kMinWindowBytes = 64 << 10, kMaxWindowBytes = 256 << 20;
constexpr uint64_t kCompareBytes = 1 << 20;
constexpr uint64_t kNextBytes = 64 << 10;  // that tell the source from another one

// Bytes [begin, end) of the file, all of one segment.
struct Range {
  uint32_t segment;
  uint64_t begin, end;
};

// The weights between two places of the file, in ranges of at most `most` bytes.
std::vector<Range> ranges_between(const PlanContents& contents, uint64_t begin, uint64_t end,
                                  uint64_t most) {
  std::vector<Range> ranges;
  for (uint32_t s = 0; s < contents.segments.size(); ++s) {
    const SegmentRecord& segment = contents.segments[s];
    const uint64_t to = std::min(end, segment.offset + segment.size);
    for (uint64_t at = std::max(begin, segment.offset); at < to; at += most) {
      ranges.push_back({s, at, std::min(at + most, to)});
    }
  }
  return ranges;
}

// Whether bytes from `offset` on of the slices, joined, are these.
bool equal_in_slices(std::span<const std::span<const std::byte>> slices, uint64_t offset,
                     std::span<const std::byte> bytes) {
  for (const auto slice : slices) {
    if (bytes.empty()) break;
    if (offset >= slice.size()) {
      offset -= slice.size();
      continue;
    }
    const size_t size = std::min<size_t>(slice.size() - offset, bytes.size());
    if (std::memcmp(slice.data() + offset, bytes.data(), size) != 0) return false;
    bytes = bytes.subspan(size);
    offset = 0;
  }
  return bytes.empty();
}

class Mover {
 public:
  Mover(PlanWriter& writer, std::span<const BlobSource> sources, std::span<MovedFile> files,
        const PackOptions& options)
      : writer_(writer),
        contents_(writer.contents()),
        sources_(sources),
        files_(files),
        options_(options),
        pool_(thread_count(options.threads)) {
    const std::vector<ChunkRange>& chunks = writer.layout().chunks;
    if (!chunks.empty()) {
      begin_ = chunks.front().offset;
      end_ = chunks.back().offset + chunks.back().size;
    }
    for (const ChunkRange& chunk : chunks) {
      total_ += chunk.size;
      done_ +=
          std::clamp(writer.moved().end, chunk.offset, chunk.offset + chunk.size) - chunk.offset;
    }
    window_ = std::clamp(total_ / kWindows, kMinWindowBytes, kMaxWindowBytes);
    pieces_ = release_order(contents_, std::min(window_ / 2, kCompareBytes));
    const auto threads = static_cast<uint64_t>(pool_.threads());
    step_ = std::clamp(window_ / threads, kMinWindowBytes, kStepBytes);
    for (uint64_t i = 0; i < threads; ++i) {
      assemblers_.emplace_back(contents_, sources_, options_.files);
      buffers_.emplace_back(std::max(step_, kCompareBytes));
    }
  }

  Status run() {
    KTX_TRY(check_start());
    uint64_t at = writer_.moved().end;
    // Also the mark of a killed run, which may be in memory only.
    KTX_TRY(writer_.set_moved({at, next_hash(at)}));
    for (MovedFile& file : files_) KTX_TRY(file.begin());
    const MappedFile moved = KTX_TRY(writer_.map());
    KTX_TRY(release(at));  // a killed run may not have come to it
    while (at < end_) {
      const uint64_t next = std::min(std::max(at, begin_) + window_, end_);
      KTX_TRY(write(at, next));
      KTX_TRY(compare(moved, at, next));
      for (const MappedFile* file : options_.files) KTX_TRY(file->check());
      KTX_TRY(writer_.set_moved({next, next_hash(next)}));
      KTX_TRY(release(next));
      at = next;
    }
    return {};
  }

 private:
  Status check_start() {
    const bool begun = std::ranges::any_of(files_, &MovedFile::begun);
    const bool whole = std::ranges::all_of(files_, &MovedFile::has_all_blocks);
    const std::string& source = files_[0].path();
    if (!begun && writer_.moved().end > 0) {
      return Error{fmt::format(
          "{0}{1}: has weights of an earlier --consume whose file is not {2}{1}; remove it, if "
          "{2} is whole",
          writer_.path(), kMovingSuffix, source)};
    }
    if (begun && writer_.has_other_work()) {
      return Error{fmt::format(
          "{0}{1}: an earlier --consume was stopped here, with another model, other options, rules, "
          "target or version of ktx-compile; give that command again, or remove this file, which "
          "has no weights that are not in their model",
          writer_.path(), kMovingSuffix)};
    }
    if (begun && !writer_.resumed() && !whole) {
      return Error{fmt::format(
          "{0}{1}: an earlier --consume was stopped here, and the weights that it has moved are "
          "not in {2}{1}; give the -o, options and rules of that command",
          source, kMovingSuffix, writer_.path())};
    }
    const PlanWriter::Moved& moved = writer_.moved();
    if (writer_.resumed() && begun && !(next_hash(moved.end) == moved.next)) {
      return Error{
          fmt::format("{0}{1} is not the rest of the model whose weights {2}{1} has; "
                      "give the model of that plan",
                      source, kMovingSuffix, writer_.path())};
    }
    return {};
  }

  // Hash of the first weights from `at` on.
  Hash128 next_hash(uint64_t at) {
    const std::vector<Range> ranges = ranges_between(contents_, at, end_, kNextBytes);
    if (ranges.empty()) return {};
    const Range& range = ranges.front();
    const auto bytes = std::span(buffers_[0]).first(range.end - range.begin);
    assemblers_[0].assemble(contents_.segments[range.segment], range.begin, bytes);
    return hash_bytes(bytes);
  }

  // Calls work(index, thread) for each index below count, on all threads.
  template <class Work>
  Status for_each(size_t count, const Work& work) {
    std::atomic<bool> failed = false;
    std::mutex mutex;
    Status first;
    pool_.for_each(static_cast<int64_t>(count), [&](int64_t i, int thread) {
      if (failed) return;
      Status status = work(static_cast<size_t>(i), static_cast<size_t>(thread));
      if (status.ok()) return;
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) first = std::move(status);
    });
    return first;
  }

  Status write(uint64_t begin, uint64_t end) {
    const std::vector<Range> ranges = ranges_between(contents_, begin, end, step_);
    KTX_TRY(for_each(ranges.size(), [&](size_t i, size_t thread) -> Status {
      const Range& range = ranges[i];
      const auto bytes = std::span(buffers_[thread]).first(range.end - range.begin);
      assemblers_[thread].assemble(contents_.segments[range.segment], range.begin, bytes);
      return writer_.write(range.begin, bytes);
    }));
    for (const Range& range : ranges) done_ += range.end - range.begin;
    if (options_.progress) options_.progress(done_, total_);
    return {};
  }

  // Whether the sources of what was written come out of it again.
  Status compare(const MappedFile& moved, uint64_t begin, uint64_t end) {
    struct Part {
      uint32_t blob;
      uint64_t begin, end;  // of its slices, joined
    };
    std::vector<Part> parts;
    for (uint32_t i = 0; i < contents_.blobs.size(); ++i) {
      const BlobRecord& blob = contents_.blobs[i];
      if (blob.slice_count == 0 || blob.offset >= end || blob.offset + blob.size <= begin) continue;
      const auto within = [&](uint64_t at) {
        return source_bytes_within(
            blob, std::clamp(at, blob.offset, blob.offset + blob.size) - blob.offset);
      };
      const uint64_t last = within(end);
      for (uint64_t at = within(begin); at < last; at += kCompareBytes) {
        parts.push_back({i, at, std::min(at + kCompareBytes, last)});
      }
    }
    return for_each(parts.size(), [&](size_t i, size_t thread) -> Status {
      const Part& part = parts[i];
      const BlobRecord& blob = contents_.blobs[part.blob];
      const auto packed = moved.bytes().subspan(blob.offset, blob.size);
      auto bytes = std::span<const std::byte>(packed).subspan(0, 0);
      if (blob.layout == static_cast<uint16_t>(Layout::Rows)) {
        bytes = packed.subspan(part.begin, part.end - part.begin);
      } else {
        const auto out = std::span(buffers_[thread]).first(part.end - part.begin);
        KTX_TRY(unpack_layout(blob, packed, part.begin, out));
        bytes = out;
      }
      if (equal_in_slices(sources_[part.blob].slices, part.begin, bytes)) return {};
      return Error{fmt::format(
          "weight '{}' reads back from the plan with other bytes than the model has (a changed "
          "file, a fault of memory or disk, or a mistake in ktx-compile); stopped before its blocks "
          "were released",
          printable(contents_.strings[blob.name]))};
    });
  }

  // What is not read again once the plan is there up to `at`.
  Status release(uint64_t at) {
    while (released_ < pieces_.size() && pieces_[released_].behind <= at) {
      const ReleasePiece& first = pieces_[released_++];
      uint64_t end = first.end;
      for (; released_ < pieces_.size(); ++released_) {
        const ReleasePiece& piece = pieces_[released_];
        if (piece.behind > at || piece.shard != first.shard || piece.begin != end) break;
        end = piece.end;
      }
      KTX_TRY(files_[first.shard].release(first.begin, end));
    }
    return {};
  }

  PlanWriter& writer_;
  const PlanContents& contents_;
  std::span<const BlobSource> sources_;
  std::span<MovedFile> files_;
  const PackOptions& options_;
  ThreadPool pool_;
  std::vector<BlobAssembler> assemblers_;        // by thread
  std::vector<std::vector<std::byte>> buffers_;  // by thread
  std::vector<ReleasePiece> pieces_;
  size_t released_ = 0;
  uint64_t begin_ = 0, end_ = 0;  // of the weights
  uint64_t total_ = 0, done_ = 0, window_ = 0, step_ = 0;
};

Status check_gap(const MappedFile& file, uint64_t begin, uint64_t end) {
  const auto bytes = file.bytes();
  for (uint64_t at = begin; at < std::min<uint64_t>(end, bytes.size()); ++at) {
    if (bytes[at] == std::byte{0}) continue;
    return Error{
        fmt::format("{}: has bytes other than zero between its tensors, at {}, which a "
                    "plan does not hold; compile without --consume",
                    file.path(), at)};
  }
  return {};
}

}  // namespace

Status check_movable(const PlanContents& contents, std::span<const MappedFile* const> files) {
  for (const auto& [blob, form] : contents.requantized) {
    return Error{
        fmt::format("weight '{}' is rounded to {}, and its values would be lost with the "
                    "model; compile without that rule or without --consume",
                    printable(contents.strings[contents.blobs[blob].name]), form)};
  }
  if (!contents.merged.empty()) {
    return Error{
        "weights have an adapter merged, and the model's own would be lost with it; "
        "compile without --merge or without --consume"};
  }
  PlanView view;
  view.blobs = contents.blobs;
  view.slices = contents.slices;
  view.gguf_tensors = contents.gguf.tensors;
  if (const auto gap = find_gap(view, tensor_parts(view))) {
    const GgufTensorRecord& tensor = contents.gguf.tensors[gap->tensor];
    return Error{
        fmt::format("the plan holds only {} of the {} bytes of tensor '{}', and the rest would be "
                    "lost with the model; compile without --consume",
                    gap->bytes, tensor.size, printable(contents.strings[tensor.name]))};
  }
  for (const SourceGap& gap : source_gaps(contents)) {
    if (gap.end < gap.begin) {
      return Error{fmt::format("tensor '{}' overlaps another one; compile without --consume",
                               printable(contents.strings[gap.tensor_name]))};
    }
    KTX_TRY(check_gap(*files[gap.shard], gap.begin, gap.end));
  }
  for (size_t s = 0; s < files.size(); ++s) {
    const uint64_t size = contents.gguf.shards[s].file_size;
    if (files[s]->bytes().size() > size) {
      return Error{
          fmt::format("{}: has {} bytes behind its last tensor, which a plan does not "
                      "hold; compile without --consume",
                      files[s]->path(), files[s]->bytes().size() - size)};
    }
  }
  return {};
}

Status check_rest(const PlanFile& plan, uint32_t shard, const MovedFile& rest) {
  const auto other = [&] {
    return Error{
        fmt::format("{}{}: not the rest of the model in {}, which is a whole plan; rename "
                    "that one to keep it",
                    printable(rest.path()), kMovingSuffix, printable(plan.path()))};
  };
  const MappedFile file = KTX_TRY(MappedFile::open(rest.path() + kMovingSuffix));
  const GgufShardRecord& record = plan->gguf_shards[shard];
  const auto header = plan->gguf_section.subspan(record.header_offset, record.header_size);
  if (file.bytes().size() != record.file_size ||
      !std::ranges::equal(file.bytes().first(header.size()), header)) {
    return other();
  }
  for (const TensorPart& part : tensor_parts(plan.view())) {
    const GgufTensorRecord& tensor = plan->gguf_tensors[part.tensor];
    if (tensor.shard != shard) continue;
    const uint64_t begin = tensor.offset + part.begin, end = begin + part.size;
    std::vector<std::byte> bytes;
    for (uint64_t at = rest.next_data(begin); at < end; at = rest.next_data(at + bytes.size())) {
      bytes.resize(std::min(end - at, kMinWindowBytes));
      KTX_TRY(read_part(plan.view(), part, at - begin, bytes));
      // A block that two tensors share stays where one of them is kept.
      const auto held = file.bytes().subspan(at, bytes.size());
      const auto known = [](std::byte a, std::byte b) { return a == b || a == std::byte{0}; };
      if (!std::ranges::equal(held, bytes, known)) return other();
    }
  }
  return file.check();
}

Status move_blobs(PlanWriter& writer, std::span<const BlobSource> sources,
                  std::span<MovedFile> files, const PackOptions& options) {
  KTX_TRY(check_sources(writer.contents(), sources));
  return Mover(writer, sources, files, options).run();
}

}  // namespace ktx::plan
