// Streams weights from mapped source files into a plan, on all cores.
//
//   std::vector<BlobSource> sources;            // one per blob, in order
//   sources.push_back({.slices = {tensor.bytes}});
//   KTX_TRY(pack_blobs(writer, sources, {.threads = 8, .progress = ...}));
//
// It also hashes the source of each blob (PlanContents::source_hashes), by the same pieces: those
// that the blob's pieces in a chunk are made of, with the chunk.
//
// The unit of work is a hash chunk of a segment (64 MiB): a worker assembles its
// bytes from the blobs it overlaps, through a buffer of a few MiB, hashes and
// writes them. Blob hashes are made of pieces of 4 MiB counted from the blob's
// start (plan_format.h); a piece belongs to the chunk it begins in, and the worker
// packs its rest once more for the hash only when it crosses into the next chunk
// (at most 4 of 64 MiB). So chunks are independent of each other, whatever the sizes
// of the blobs.
//
// Memory: a few MiB a thread and at most 768 MiB in all, whatever
// the model's size. Source pages are released as soon as they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/formats/layout.h"
#include "lib/plan/plan_writer.h"
#include "lib/support/mapped_file.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Fills `out` with bytes [offset, offset + out.size()) of a packed blob. Offset
// and size are multiples of the source's granule (or end with the blob). Called from
// several threads at once. Packers of layouts live in kernels/.
using PackFunction = std::function<void(std::span<const std::span<const std::byte>> slices,
                                        uint64_t offset, std::span<std::byte> out)>;

struct BlobSource {
  // The GGUF bytes of the blob's rows, in order: of each slice, or of parts of rows one by one.
  // A constant has none.
  std::vector<std::span<const std::byte>> slices;
  PackFunction pack;           // empty: Layout::Rows, the slices one after the other
  uint64_t granule_bytes = 1;  // what `pack` works in, at most 1 MiB
  // Not empty: the blob as it was packed before, with the hash that it must have, and that of its
  // source (reuse_blobs.h). `slices` and `pack` are not looked at.
  std::span<const std::byte> packed;
  Hash128 packed_hash, source_hash;

  uint64_t source_bytes() const {
    uint64_t bytes = 0;
    for (const auto slice : slices) bytes += slice.size();
    return bytes;
  }
};

struct PackOptions {
  int threads = 0;  // 0: all cores
  // Bytes of weights done so far and in all; called from one thread at a time,
  // about once per MiB-sized step.
  std::function<void(uint64_t done, uint64_t total)> progress;
  // Files that sources lie in: their pages are let go once read, and they are asked
  // for check() at the end of every chunk. Sources elsewhere (memory) may be mixed in.
  std::vector<const MappedFile*> files;
  // Not null: the work file, which has all weights already (move_blobs.h). They are hashed as they
  // are in it, and their sources as they come out of it.
  const MappedFile* moved = nullptr;
};

// The hash of piece `piece` of the joined slices (kBlobPieceBytes each).
Hash128 hash_source_piece(std::span<const std::span<const std::byte>> slices, uint64_t piece);

Status pack_blobs(PlanWriter& writer, std::span<const BlobSource> sources,
                  const PackOptions& options = {});

}  // namespace ktx::plan
