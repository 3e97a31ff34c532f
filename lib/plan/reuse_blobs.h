// Takes packed weights over from an older plan of the same model instead of packing them again
// (ktx-compile --reuse OLD.ktxplan).
//
//   const ReusedBlobs reused = KTX_TRY(reuse_blobs(old, contents, sources, threads));
//   KTX_TRY(pack_blobs(writer, sources, ...));   // copies what `old` has, packs the rest
//
// A blob is taken over where the old plan has one of the same slices in the same layout, and where
// the hash that the old plan has of its source (PlanView::source_hashes) is that of the bytes at
// hand. So the result is the one of packing, byte for byte: the sources are read, but not unpacked
// and packed. Blobs in the layout `rows` are copies of the source either way, and rounded weights
// are rounded again: what they are rounded by is not in the old plan.
#pragma once

#include <cstdint>
#include <span>

#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

struct ReusedBlobs {
  int64_t count = 0, of_count = 0;  // blobs, of those that are packed
  uint64_t bytes = 0, of_bytes = 0;
};

// Sets `packed` and the hashes of sources[i] for each blob i of `contents` that `old` has; `old`
// must outlive the packing. Fails where `old` is a plan of another model: of other tensors, or of
// the same ones with other values throughout. Safe for untrusted plans: pack_blobs() checks what
// was copied.
Result<ReusedBlobs> reuse_blobs(const PlanFile& old, const PlanContents& contents,
                                std::span<BlobSource> sources, int threads);

}  // namespace ktx::plan
