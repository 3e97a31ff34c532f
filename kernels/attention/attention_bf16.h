// Attention with AVX-512 over caches of 16 and 8 bits: with vdpbf16ps, for processors that have it
// (has_bf16_dots) beyond what Isa::Avx512 asks for, and without, of the same bits. Private to
// kernels/attention and its test.
#pragma once

#include "kernels/attention/attention.h"

namespace ktx::kernels {

void attention_bf16_dots(const AttentionArgs& args);
void attention_bf16_floats(const AttentionArgs& args);

}  // namespace ktx::kernels
