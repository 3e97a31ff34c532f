// Embedding rows from a table in panels of 16 rows, block by block, floats a piece of 64
// columns at a time. A table is in
// panels only when the output head shares it, which gains more than this loses.
#include <array>

#include "kernels/embed/embed.h"
#include "kernels/matmul/panel16.h"
#include "kernels/matmul/panel16_floats.h"

namespace ktx::kernels {

void embed_panel16_scalar(const EmbedArgs& a);

namespace {

void embed_floats(const EmbedArgs& a) {
  constexpr int64_t kPiece = 64;
  std::array<std::byte, kPiece * 4> piece;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const int64_t row = a.ids[t];
    const std::byte* panel = a.table.data + row / kPanelRows * kPanelRows * a.table.row_bytes;
    for (int64_t k = 0; k < a.table.cols; k += kPiece) {
      const int64_t count = a.table.cols - k < kPiece ? a.table.cols - k : kPiece;
      unpack_float_columns(a.table.dtype, a.table.cols, panel, row % kPanelRows, k, count,
                           piece.data());
      dequantize_row(a.table.dtype, piece.data(), count, a.y + t * a.y_stride + k);
    }
  }
}

}  // namespace

void embed_panel16_scalar(const EmbedArgs& a) {
  if (panel16_float_columns(a.table.dtype)) return embed_floats(a);
  const DTypeInfo& type = info(a.table.dtype);
  const int64_t blocks = a.table.cols / type.block_elems;
  std::array<std::byte, 256> block;  // the largest of panel16.def has 210 bytes
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const int64_t row = a.ids[t];
    const std::byte* panel = a.table.data + row / kPanelRows * kPanelRows * a.table.row_bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      unpack_panel16_block(a.table.dtype, a.table.cols, panel, row % kPanelRows, b, block.data(),
                           a.table.layout);
      dequantize_row(a.table.dtype, block.data(), type.block_elems,
                     a.y + t * a.y_stride + b * type.block_elems);
    }
  }
}

}  // namespace ktx::kernels
