// Weights in device memory.
//
// Two layouts (lib/formats/layout.def): `rows`, the GGUF bytes, and `marlin`, tiles of
// 16 rows x 256 columns in the order in which tensor cores want them
// (kernels/matmul/marlin_layout.h). A blob of several matrices (experts, heads) has
// each of them packed alone, matrix_bytes apart. Data is 256-byte aligned.
//
//   cuda_matmul_takes(DType::Q4_K, Layout::Marlin) == true
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"

namespace ktx::kernels {

struct CudaWeight {
  const std::byte* data = nullptr;
  DType dtype = DType::F32;
  Layout layout = Layout::Rows;
  int64_t rows = 0;          // of one matrix
  int64_t cols = 0;          // a multiple of the dtype's block
  int64_t matrix_bytes = 0;  // from one matrix to the next
};

// Whether products (matmul, matmul_heads, experts) take weights of this kind:
// marlin: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4;
// rows:   F32 F16 BF16.
bool cuda_matmul_takes(DType dtype, Layout layout);

// Whether `embed` takes the table: all of the above, and `rows` of the marlin types.
bool cuda_embed_takes(DType dtype, Layout layout);

}  // namespace ktx::kernels
