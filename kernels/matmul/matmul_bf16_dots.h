// matmul_rows_bf16 and matmul_panel16_bf16 with AVX-512: with vdpbf16ps, for processors that have
// it (has_fast_bf16_dots) beyond what Isa::Avx512 asks for, and without, of the same bits. Both
// take BF16 weights. Private to kernels/matmul and its test.
#pragma once

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

void matmul_bf16_dots_skinny(const MatmulArgs& args);
void matmul_bf16_dots_gemm(const MatmulArgs& args);
void matmul_bf16_floats_skinny(const MatmulArgs& args);
void matmul_bf16_floats_gemm(const MatmulArgs& args);
void matmul_panel16_bf16_dots_gemv(const MatmulArgs& args);
void matmul_panel16_bf16_dots_gemm(const MatmulArgs& args);
void matmul_panel16_bf16_floats_gemv(const MatmulArgs& args);
void matmul_panel16_bf16_floats_gemm(const MatmulArgs& args);

}  // namespace ktx::kernels
