// Writes a plan through a work file beside the target.
//
//   PlanWriter writer = KTX_TRY(PlanWriter::create("m.ktxplan", std::move(contents), {}));
//   KTX_TRY(pack_blobs(writer, sources, {}));   // pack_blobs.h: weights, on all cores
//   KTX_TRY(writer.finish());                   // tables, header, fsync, rename
//
// The work file, m.ktxplan.work, has its full size from the start (fallocate), so
// that a full disk is an error before the work and not after it. Past the end of
// the plan it carries a journal: a mark, the identity of the inputs, and the hash
// of every finished chunk. After a kill the next run with the same inputs finds
// it, checks the finished chunks against their hashes and packs only the others; a
// work file of other inputs is started over. A lock (flock) on it makes a second
// writer of the same target fail at once.
//
// A move (WriterOptions::moves) is another kind of work: the plan is to be the only copy of its
// source, whose blocks go back to the disk while it is written (move_blobs.h). Its work file is
// m.ktxplan.moving, which no other writer of the target touches; it takes space as it is filled,
// and its mark has the place up to which it may be the only copy. Once that is more than nothing,
// the file stays whatever fails, and only the same inputs go on with it.
//
// Until finish() the target is untouched, and after it the target is whole. A
// writer that is destroyed without finish() removes its work file.
//
// write(), read(), finish_chunk() and set_hashes() may be called from several
// threads at once (for different chunks and blobs); the rest may not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lib/plan/plan_contents.h"
#include "lib/support/file_stamp.h"
#include "lib/support/mapped_file.h"
#include "lib/support/result.h"

namespace ktx::plan {

struct WriterOptions {
  // What distinguishes these source files from others with the same headers: see
  // source_key(). Decides only whether a left-over work file may be used.
  Hash128 source_key;
  bool resume = true;
  bool moves = false;
  uint64_t given_back = 0;  // of a move: bytes of the target's disk that become free meanwhile
};

// For a source file: its stat data when it was opened, and its bytes.
struct SourceFile {
  FileStamp stamp;
  std::span<const std::byte> bytes;
};
// A key of files by their stamps and by samples of their bytes, for file systems whose stamps say
// little (images that are mounted, FAT).
Hash128 source_key(std::span<const SourceFile> files);

class PlanWriter {
 public:
  // Runs the reader's checks on the contents first. Fails with needed and free bytes
  // when the disk is too full, and when another process writes the same target.
  static Result<PlanWriter> create(const std::string& path, PlanContents contents,
                                   const WriterOptions& options = {});
  PlanWriter(PlanWriter&&) noexcept;
  PlanWriter& operator=(PlanWriter&&) noexcept;
  ~PlanWriter();

  const std::string& path() const;       // the target
  const PlanContents& contents() const;  // with offsets and sizes filled in
  const PlanLayout& layout() const;

  // The hash that an earlier, killed run noted for a chunk; nothing if none did.
  std::optional<Hash128> journaled_hash(size_t chunk) const;

  // For a move: the offset in the file up to which the weights are there, by the mark; 0 at first.
  // The weights behind it begin with bytes of the hash `next`.
  struct Moved {
    uint64_t end = 0;
    Hash128 next;
  };
  const Moved& moved() const;
  bool resumed() const;  // it goes on with a work file of the same inputs
  // There is a work file of other inputs, without weights: the first set_moved() starts it over.
  bool has_other_work() const;
  // Brings to the disk what was written, and then the mark. Until the first call the work file is
  // as it was found.
  Status set_moved(const Moved& moved);
  // The file as it is.
  Result<MappedFile> map() const;

  // Bytes of the weight segments, at an offset in the file. A failure names the
  // file and the cause ("no space left on the device").
  Status write(uint64_t offset, std::span<const std::byte> bytes);
  Status read(uint64_t offset, std::span<std::byte> bytes);
  // Notes that a chunk is written, with the hashes of its bytes.
  Status finish_chunk(size_t chunk, const Hash128& hash, const DigestRecord& digest);
  // The hashes of a blob and of what it was made of.
  void set_hashes(size_t blob, const Hash128& hash, const Hash128& source);

  // Writes the rest and puts the file in place. Every chunk must be finished and
  // every blob have its hash.
  Status finish();
  // The two halves of finish(): after the first one the work file is a whole plan, on the disk.
  Status complete();
  Status put_in_place();

 private:
  struct State;
  explicit PlanWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ktx::plan
