// The size in bytes of a matrix in a layout, for writing, checking and mapping plans.
//
//   *matrix_bytes(Layout::Panel16, DType::Q4_K, 1000, 4096)   // 1008 rows of 2304 bytes
//
// The layout's own header describes the order of the bytes (kernels/matmul/panel16.h).
#pragma once

#include <cstdint>
#include <optional>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"

namespace ktx {

// Panels and Marlin take so many rows together; a matrix is padded with zero rows to a multiple.
inline constexpr int64_t kPanelRows = 16;

// The bytes of a block that fill no 32-bit word (panel16.def).
struct Panel16Form {
  DType dtype;
  int rest_begin;
  int rest_bytes;
};
std::optional<Panel16Form> panel16_form(DType dtype);

// Whether Layout::Panel16Stream takes the format (panel16_stream.def).
bool panel16_stream_takes(DType dtype);

// Panels, in whichever order, and the better order of a format that has panels.
constexpr bool in_panels(Layout layout) {
  return layout == Layout::Panel16 || layout == Layout::Panel16Stream;
}
inline Layout panel_layout(DType dtype) {
  return panel16_stream_takes(dtype) ? Layout::Panel16Stream : Layout::Panel16;
}

// The columns that stand together in a panel of a float format (panel16_floats.def).
// Nothing for other formats.
std::optional<int> panel16_float_columns(DType dtype);

// Rows that the layout stores for a matrix of `rows`.
constexpr int64_t stored_rows(Layout layout, int64_t rows) {
  const bool sixteen = in_panels(layout) || layout == Layout::Marlin;
  return sixteen ? (rows + kPanelRows - 1) / kPanelRows * kPanelRows : rows;
}

// Bytes of one matrix; nothing when the layout does not take it (the dtype, columns
// that are no whole blocks, a panel above kMaxPanelBytes) or the size does not fit 63
// bits. Safe for untrusted counts.
std::optional<int64_t> matrix_bytes(Layout layout, DType dtype, int64_t rows, int64_t cols);

// A panel is packed and unpacked in one piece.
inline constexpr int64_t kMaxPanelBytes = 1 << 20;

}  // namespace ktx
