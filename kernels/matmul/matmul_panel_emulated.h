// The AMX products with emulated tiles (matmul_panel_tile_bf16_tiles.h): for tests only. Needs
// AVX-512.
#pragma once

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

// As the selectors of matmul_panel16_tile_bf16 with AMX. Null for a dtype without a panel form.
MatmulFn matmul_panel16_tile_bf16_skinny_emulated(DType dtype);
MatmulFn matmul_panel16_tile_bf16_gemm_emulated(DType dtype);

}  // namespace ktx::kernels
