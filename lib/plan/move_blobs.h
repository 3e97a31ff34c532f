// Moves weights from their source files into a plan, so that the disk never holds them twice
// (ktx-compile --consume): blocks of the source go back as soon as the plan is on the disk up to
// behind all that is made of them.
//
//   KTX_TRY(check_movable(contents, options.files));
//   PlanWriter writer = KTX_TRY(PlanWriter::create(path, std::move(contents), {.moves = true}));
//   KTX_TRY(move_blobs(writer, sources, files, options));
//   options.moved = ...writer.map();
//   KTX_TRY(pack_blobs(writer, sources, options));   // only hashes
//   KTX_TRY(writer.complete());
//   ... files[i].remove() ...
//   KTX_TRY(writer.put_in_place());
//
// A window (1/256 of the weights) at a time: written, unpacked again and compared with the source,
// synced; then the mark of the work file, synced; then holes in the source. So each byte of the
// source is on the disk, in the source or unpacked equal from the plan, whenever the process or the
// machine ends, and the next run goes on behind the mark. The next run recognises its source by a
// hash of the bytes behind the mark.
//
// Space: the larger of source and plan, a window, and the files' blocks at the edges of tensors.
#pragma once

#include <span>

#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/plan_writer.h"
#include "lib/support/mapped_file.h"
#include "lib/support/moved_file.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Whether the source can be rebuilt from the plan, byte for byte: it holds all tensors as they are,
// and there is nothing beside them. `files`: its shards, in order. Fails with the tensor's name.
Status check_movable(const PlanContents& contents, std::span<const MappedFile* const> files);

// `files` are the shards, which options.files maps. Begins them, and releases all but their headers
// and the tensors that are kept (release_order.h). Files that an earlier run has begun are taken
// from the start where all their blocks are there and the target has no work file. A failure leaves
// what the next run needs.
Status move_blobs(PlanWriter& writer, std::span<const BlobSource> sources,
                  std::span<MovedFile> files, const PackOptions& options);

// Whether the file, the shard of this number, has nothing that the whole plan `plan` does not hold:
// it is what move_blobs() has left of its source.
Status check_rest(const PlanFile& plan, uint32_t shard, const MovedFile& rest);

}  // namespace ktx::plan
