// Attention with AVX-512 over caches of 16 and 8 bits, of the same bits: with vdpbf16ps, for
// processors that have a fast one (has_fast_bf16_dots) beyond what Isa::Avx512 asks for; with
// floats that an instruction rounds, for those with a slow one; and without either. Private to
// kernels/attention and its test.
#pragma once

#include "kernels/attention/attention.h"

namespace ktx::kernels {

void attention_bf16_dots(const AttentionArgs& args);
void attention_bf16_rounded(const AttentionArgs& args);
void attention_bf16_floats(const AttentionArgs& args);

}  // namespace ktx::kernels
