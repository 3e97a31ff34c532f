// Embedding rows from a table in panels of 16 rows, block by block. A table is in
// panels only when the output head shares it, which gains more than this loses.
#include <array>

#include "kernels/embed/embed.h"
#include "kernels/matmul/panel16.h"

namespace ktx::kernels {

void embed_panel16_scalar(const EmbedArgs& a);

void embed_panel16_scalar(const EmbedArgs& a) {
  const DTypeInfo& type = info(a.table.dtype);
  const int64_t blocks = a.table.cols / type.block_elems;
  std::array<std::byte, 256> block;  // the largest of panel16.def has 210 bytes
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const int64_t row = a.ids[t];
    const std::byte* panel = a.table.data + row / kPanelRows * kPanelRows * a.table.row_bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      unpack_panel16_block(a.table.dtype, a.table.cols, panel, row % kPanelRows, b, block.data());
      dequantize_row(a.table.dtype, block.data(), type.block_elems,
                     a.y + t * a.y_stride + b * type.block_elems);
    }
  }
}

}  // namespace ktx::kernels
