// Rows of packed weights to floats, or to int8 codes with scales and mins.
//
//   RowDecoder decode = row_decoder(DType::Q4_K, isa);
//   decode(row, 4096, floats);                        // once per row, then many tokens
//
//   const Int8Form form = *int8_form(DType::Q4_K);    // group 32, with mins
//   int8_decoder(DType::Q4_K, isa)(row, 4096, codes, scales, mins);
//   // w[i] == scales[i / form.group] * codes[i] - mins[i / form.group]
//
// All instruction sets give the same bits (only a NaN's payload may differ): those
// of dequantize_row and decode_int8_row in lib/formats, which are the scalar
// decoders. Safe for any bytes; nothing is read or written outside the row.
#pragma once

#include <cstdint>

#include "lib/formats/dtype.h"
#include "lib/formats/int8_form.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

// elems: a multiple of the type's block. packed needs no alignment, the outputs that
// of their elements.
using RowDecoder = void (*)(const void* packed, int64_t elems, float* out);

// codes[elems]; scales and mins [elems / group], mins untouched without has_min.
using Int8Decoder = void (*)(const void* packed, int64_t elems, int8_t* codes, float* scales,
                             float* mins);

// The decoder for `isa`, or for the strongest set below it that has one. Never null
// but for I32, which is no weight format.
RowDecoder row_decoder(DType dtype, Isa isa);

// The same; null for types without an int8 form (F32, F16, BF16, I32).
Int8Decoder int8_decoder(DType dtype, Isa isa);

}  // namespace ktx::kernels
