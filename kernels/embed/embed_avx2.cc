// Embedding rows with the AVX2 decoders, which give the same bits.
#include "kernels/embed/embed.h"
#include "kernels/matmul/row_decode.h"

namespace ktx::kernels {

void embed_avx2(const EmbedArgs& a);

void embed_avx2(const EmbedArgs& a) {
  const RowDecoder decode = row_decoder(a.table.dtype, Isa::Avx2);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    decode(a.table.data + a.ids[t] * a.table.row_bytes, a.table.cols, a.y + t * a.y_stride);
  }
}

}  // namespace ktx::kernels
