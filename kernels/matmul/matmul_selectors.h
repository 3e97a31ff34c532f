// The selectors of matmul.def. A file that defines one without a row of the table does not
// declare it, which kernel_rows_test.cc finds. Private to kernels/matmul and its tests.
#pragma once

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

#define KTX_MATMUL(family, isa, least, most, selector) MatmulFn selector(DType dtype);
#define KTX_MATMUL_TRANSPOSED(family, isa, selector) MatmulTransposedFn selector(DType dtype);
#include "kernels/matmul/matmul.def"
#undef KTX_MATMUL_TRANSPOSED
#undef KTX_MATMUL

}  // namespace ktx::kernels
