// Layout::Panel16 of float weights: sixteen rows side by side, so that a register's lanes
// are rows.
//
//   F32, F16:  panel = | column 0 of rows 0..15 | column 1 of rows 0..15 | ... |
//   BF16:      panel = | columns 0, 1 of row 0, of row 1, ... 15 | columns 2, 3 ... | ... |
//
// A pair of BF16 is what a lane of vdpbf16ps takes; an odd last column stands alone. Like
// panel16.h, which calls these, for the formats of lib/formats/panel16_floats.def.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/layout_size.h"

namespace ktx::kernels {

// rows[r]: the GGUF bytes of row r, or null for a row of zeros.
void pack_float_panel(DType dtype, int64_t cols, const std::byte* const (&rows)[kPanelRows],
                      std::byte* panel);

// The reverse. Rows that are null are not written but looked at: false when one of them
// is not zero.
bool unpack_float_panel(DType dtype, int64_t cols, const std::byte* panel,
                        std::byte* const (&rows)[kPanelRows]);

// Columns [first, first + count) of row r of a panel.
void unpack_float_columns(DType dtype, int64_t cols, const std::byte* panel, int64_t r,
                          int64_t first, int64_t count, std::byte* out);

}  // namespace ktx::kernels
