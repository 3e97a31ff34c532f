// Panels read by a kernel for rows: each panel's rows are unpacked to their GGUF bytes
// in scratch and given to `product`. What exact precision and the scalar set use: the
// bits are those of layout rows.
//
// Private to kernels/matmul.
#pragma once

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/panel16.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {

template <MatmulFn product>
void product_of_panels(const MatmulArgs& a) {
  std::byte* rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) rows[r] = a.scratch + r * a.w.row_bytes;
  MatmulArgs part = a;
  part.w.layout = Layout::Rows;
  part.w.data = a.scratch;
  part.w.rows = kPanelRows;
  part.scratch = a.scratch + (kPanelRows * a.w.row_bytes + 63) / 64 * 64;
  for (int64_t n = a.row_begin; n < a.row_end;) {
    const int64_t first = n / kPanelRows * kPanelRows;
    const int64_t end = a.row_end < first + kPanelRows ? a.row_end : first + kPanelRows;
    unpack_panel16(a.w.dtype, a.w.cols, a.w.data + first * a.w.row_bytes, rows, a.w.layout);
    part.row_begin = n - first;
    part.row_end = end - first;
    part.y = a.compact_y ? a.y + (n - a.row_begin) : a.y + first;
    part.bias = a.bias ? a.bias + first : nullptr;
    product(part);
    n = end;
  }
}

}  // namespace ktx::kernels
