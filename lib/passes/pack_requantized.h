// Packs a blob whose rows become others on the way, and measures the error:
//
//   blk.0.ffn_up.weight  Q4_K -> Q4_0   rms error 4.1 % of the weights' rms, largest 0.012
//
// Rows are rounded to the format of a rule, or have adapters added to them and are rounded to their
// own format again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/formats/requantized_form.h"
#include "lib/lora/merge.h"
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
  // Not so where a weight, or what it was rounded to, is NaN or infinite.
  bool is_finite() const;
};

// What the rows of one of BlobSource::slices are.
struct RowsOfTensor {
  DType dtype = DType::F32;
  const lora::MergedTensor* merged = nullptr;  // what is added; null: nothing
  int64_t first_row = 0;                       // of the tensor, in rows as long as the blob's
  int64_t row_elems = 0;                       // of the tensor
};

// Fills in source.pack and source.granule_bytes for the slices that it has. `form`: null where rows
// keep the blob's format, which all slices then have; rows without adapters are copied.
void pack_requantized(const plan::BlobRecord& blob, const RequantizedForm* form,
                      std::vector<RowsOfTensor> rows, std::shared_ptr<RequantizeError> error,
                      plan::BlobSource& source);

}  // namespace ktx::passes
