// Embedding rows for every dtype: the reference decode, which is exact already.
#include "kernels/embed/embed.h"

namespace ktx::kernels {

void embed_scalar(const EmbedArgs& a);

void embed_scalar(const EmbedArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    dequantize_row(a.table.dtype, a.table.data + a.ids[t] * a.table.row_bytes, a.table.cols,
                   a.y + t * a.y_stride);
  }
}

}  // namespace ktx::kernels
