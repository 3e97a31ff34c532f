// One view of every quantised format: int8 codes, and a scale and min per group.
//
//   w[i] == scales[i / group] * codes[i] - mins[i / group]     (has_min)
//   w[i] == scales[i / group] * codes[i]                       (otherwise)
//
// in float arithmetic, with the product rounded before the difference. This equals dequantize_row
// bit for bit, so one int8 product serves all 25 formats. Codes are the smallest integers for which
// it holds: Q4_0 -8..7, Q6_K -32..31, Q8_0 -128..127, MXFP4 and NVFP4 doubled, IQ1 eight times
// (grid value + delta), and so on.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/formats/dtype.h"

namespace ktx {

struct Int8Form {
  int group;     // weights per scale: 16 or 32
  bool has_min;  // false: mins are neither written nor needed
};

// Nothing for F32, F16, BF16 and I32.
std::optional<Int8Form> int8_form(DType dtype);

// Scalar decode of `elems` weights (a multiple of the block): codes[elems],
// scales[elems / group], mins likewise (may be null without has_min). `dtype` must
// have an int8 form. Safe for any bytes at any address; fails for no input.
void decode_int8_row(DType dtype, const void* packed, int64_t elems, int8_t* codes, float* scales,
                     float* mins);

}  // namespace ktx
