// Weights times float activations, once with each row as matrix row (transposed): the
// loop over a vector policy (simd/README.md). One F32 sum per output, in rising k.
//
// Included by matmul_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/row_decode.h"

namespace ktx::kernels {
namespace {

// y += x * w for rising k: a row is decoded once for all tokens.
template <class V>
void product_transposed(const MatmulTransposedArgs& a) {
  const DTypeInfo& dtype = info(a.w.dtype);
  const RowDecoder decode = row_decoder(a.w.dtype, Isa::Avx2);
  float* row = reinterpret_cast<float*>(a.scratch);
  const int64_t cols = a.col_end - a.col_begin;
  const int64_t offset = a.col_begin / dtype.block_elems * dtype.block_bytes;
  for (int64_t i = 0; i < a.tokens; ++i) {
    __builtin_memset(a.y + i * a.y_stride + a.col_begin, 0,
                     static_cast<size_t>(cols) * sizeof(float));
  }
  for (int64_t k = 0; k < a.row_count; ++k) {
    decode(a.w.data + (a.row_begin + k) * a.w.row_bytes + offset, cols, row);
    for (int64_t i = 0; i < a.tokens; ++i) {
      const typename V::F x = V::set1(a.x[i * a.x_stride + k]);
      float* y = a.y + i * a.y_stride + a.col_begin;
      int64_t n = 0;
      for (; n + 16 <= cols; n += 16) V::store(y + n, V::fma(x, V::load(row + n), V::load(y + n)));
      if (n < cols) {
        const typename V::F part = V::load_part(y + n, cols - n);
        V::store_part(y + n, cols - n, V::fma(x, V::load_part(row + n, cols - n), part));
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
