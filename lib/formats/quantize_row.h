// Rounds weights to a format of GGUF files, for weights that have become others (merged adapters).
//
//   if (!can_quantize(DType::IQ2_XS)) ...            // needs a search that ktx does not have
//   quantize_row(DType::Q4_K, x, 4096, before, out);
//
// The scales of a block are those of two with the smaller sum of squared errors: the ones that the
// row had before, and new ones that are searched for around those of the largest weight. So weights
// that have not changed keep their bytes' values, and small changes cost no second rounding of
// scales.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/dtype.h"

namespace ktx {

bool can_quantize(DType dtype);

// `elems` floats, whole blocks, to `out`. `before` is the row as it was, in the same format; null:
// there is none. What is no finite number becomes 0 in formats of codes. can_quantize(dtype) holds.
void quantize_row(DType dtype, const float* x, int64_t elems, const std::byte* before,
                  std::byte* out);

}  // namespace ktx
