// Which kernel of one token serves a product (marlin_gemv.h).
#include "kernels/cuda/gemv/marlin_gemv.h"

#include "kernels/cuda/marlin/marlin_pairs.cuh"
#include "kernels/cuda/matmul/product_launcher.cuh"

namespace ktx::kernels {

template <DType kFirst, DType kSecond>
Status launch_one(const OneProduct& p, cudaStream_t stream);

bool one_formats(DType a, DType b) {
  return marlin_pair(a, b);
}

bool marlin_gemv_fits(DType dtype, int64_t cols, int rows) {
  return marlin_gemv_fits(dtype, cols, rows, shared_memory_limit());
}

Status launch_marlin_gemv(const OneProduct& p, CudaStream stream) {
  return for_marlin_formats(p.rows, p.parts, [&]<DType kFirst, DType kSecond>() {
    return launch_one<kFirst, kSecond>(p, stream);
  });
}

namespace {

// Takes one token; with experts, every pair by itself.
bool takes_gemv(const ProductArgs& a) {
  if (a.p.offsets) return true;
  return !a.transposed && a.p.tokens == 1 && marlin_gemv_fits(a.w.dtype, a.w.cols, 1);
}

Status launch_gemv(const ProductArgs& a, cudaStream_t stream) {
  const MarlinProduct& p = a.p;
  OneProduct one;
  one.cols = p.cols;
  one.x = p.x;
  OneRows& rows = one.rows[0];
  rows.dtype = a.w.dtype;
  rows.w[0] = p.w[0];
  rows.w[1] = p.w[1];
  rows.matrix_bytes = p.matrix_bytes[0];
  rows.strip_bytes = p.strip_bytes;
  rows.row_begin = p.row_begin;
  rows.row_count = p.row_count;
  rows.y = p.y;
  rows.bias[0] = p.bias[0];
  rows.bias[1] = p.bias[1];
  rows.bias_stride = p.bias_stride;
  rows.glu = p.glu;
  rows.accumulate = p.accumulate;
  if (p.offsets) {
    one.work = OneWork::Pairs;
    one.count = p.tokens;
    one.x_stride = p.x_stride;
    rows.y_stride = p.y_stride;
    one.order = p.order;
    one.offsets = p.offsets;
    one.places = p.places;
    one.experts = p.experts;
    one.x_div = p.x_div;
  } else {
    one.count = p.matrices;
    one.x_stride = p.x_head;
    rows.y_stride = p.y_head;
  }
  return launch_marlin_gemv(one, stream);
}

}  // namespace

const ProductLauncher product_launchers::marlin_gemv{.takes = takes_gemv, .launch = launch_gemv};

}  // namespace ktx::kernels
