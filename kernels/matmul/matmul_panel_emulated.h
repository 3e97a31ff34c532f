// The AMX products with emulated tiles (matmul_panel_tiles.h): for tests only. Needs
// AVX-512 VNNI.
#pragma once

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

// Null for a dtype without a panel form.
MatmulFn matmul_panel16_q8_emulated(DType dtype);
MatmulFn matmul_panel16_tile_bf16_emulated(DType dtype);

}  // namespace ktx::kernels
