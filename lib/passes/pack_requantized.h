// Packs a blob whose rows are rounded to another format on the way, and measures the error:
//
//   blk.0.ffn_up.weight  Q4_K -> Q4_0   rms error 4.1 % of the weights' rms, largest 0.012
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/formats/requantized_form.h"
#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_format.h"

namespace ktx::passes {

// Sums over all weights of a blob. Packing threads add to it.
struct RequantizeError {
  std::mutex mutex;
  double squares = 0;        // of the weights
  double error_squares = 0;  // of what they changed by
  double largest_error = 0;
  double relative_rms() const;
};

// Fills in source.pack and source.granule_bytes; the slices' formats are `from`, in their
// order, and their bytes come through source.slices as usual.
void pack_requantized(const plan::BlobRecord& blob, const RequantizedForm& form,
                      std::vector<DType> from, std::shared_ptr<RequantizeError> error,
                      plan::BlobSource& source);

}  // namespace ktx::passes
