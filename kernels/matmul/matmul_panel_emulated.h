// The AMX products with emulated tiles (matmul_panel_tile_bf16_tiles.h): for tests only. Needs
// AVX-512.
#pragma once

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

// Null for a dtype without a panel form.
MatmulFn matmul_panel16_tile_bf16_emulated(DType dtype);

}  // namespace ktx::kernels
