// The AVX2 decoders by dtype, for row_decode.cc; data only, so that asking for a
// decoder runs no AVX2 code. Null where a type has none.
#pragma once

#include "kernels/matmul/row_decode.h"

namespace ktx::kernels {

extern const RowDecoder kRowDecodersAvx2[];
extern const Int8Decoder kInt8DecodersAvx2[];

}  // namespace ktx::kernels
