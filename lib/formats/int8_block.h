// Decode of one quantised block into its int8 form, overloaded by the block's
// type; private to lib/formats (others call int8_form.h and dtype.h).
//
// The order of the float operations is ggml's and is part of the contract: a
// group's scale is rounded before it meets a code. Any bytes are fine.
#pragma once

#include <cstdint>

#include "lib/formats/blocks.h"

namespace ktx {

// The codes, scales and mins of one block; see int8_form.h. Only as many are
// written as the format has: mins of formats without has_min never.
struct Int8Block {
  int8_t* codes;
  float* scales;
  float* mins;
};

#define KTX_INT8_FORM(id, group, has_min) void decode_block(const Block##id& in, Int8Block out);
#include "lib/formats/int8_forms.def"
#undef KTX_INT8_FORM

}  // namespace ktx
