// matmul, matmul_heads and gate_up: which kernel takes them.
//
// One token: marlin_one. Up to 16: on Hopper marlin_batch, elsewhere and for heads marlin_few.
// More: cuBLAS where that was measured to be faster; marlin_many, with activations in F16, where
// it has blocks for the whole GPU; else marlin_few in pieces of 16.
#include "kernels/cuda/cuda_matmul.h"

#include "kernels/cuda/cuda_few_tokens.h"
#include "kernels/cuda/cuda_rows.h"
#include "kernels/cuda/half_rows.cuh"
#include "kernels/cuda/library_products.h"
#include "kernels/cuda/marlin_batch.h"
#include "kernels/cuda/marlin_one.h"
#include "kernels/cuda/marlin_products.cuh"
#include "kernels/cuda/plain_products.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

Status launch_marlin_transposed(const CudaMatmulHeadsArgs& args, cudaStream_t stream);

namespace {

// The kernel of many tokens has blocks of 256 rows x 64 tokens (32 on Hopper, where it is
// twice as quick): below about one for every SM (every third), reading the weights
// from L2 once more for every 16 tokens is quicker.
bool goes_to_many(int64_t tokens, int64_t rows, const CudaWeight& w) {
  if (tokens <= kFewTokens || w.layout != Layout::Marlin || !marlin_many_runs(w.dtype))
    return false;
  const int64_t strips = ceil_div<int64_t>(rows, 256);
  if (marlin_wide_runs()) return ceil_div<int64_t>(tokens, 32) * strips >= sm_count() / 3;
  return ceil_div<int64_t>(tokens, 64) * strips >= sm_count() * 3 / 4;
}

// A row so long that shared memory has no place for it goes to the kernel of few tokens.
bool goes_to_one(int64_t tokens, DType dtype, int64_t cols) {
  return tokens == 1 && marlin_one_fits(dtype, cols, 1);
}

bool goes_to_batch(int64_t tokens) {
  return tokens > 1 && tokens <= kCudaFewTokens && marlin_batch_runs();
}

MarlinProduct marlin_product(const CudaWeight& w, const float* x, int64_t x_stride, int64_t tokens,
                             float* y, int64_t y_stride) {
  MarlinProduct p;
  p.w[0] = reinterpret_cast<const uint8_t*>(w.data);
  p.matrix_bytes[0] = w.matrix_bytes;
  p.strip_bytes = marlin_strip_bytes(w.dtype, w.cols);
  p.cols = static_cast<int>(w.cols);
  p.row_count = static_cast<int>(w.rows);
  p.x = x;
  p.x_stride = x_stride;
  p.tokens = static_cast<int>(tokens);
  p.y = y;
  p.y_stride = y_stride;
  return p;
}

Status check_weight(const CudaWeight& w) {
  if (cuda_matmul_takes(w.dtype, w.layout)) return {};
  return Error{"no GPU product takes weights of " + std::string(name(w.dtype)) + " in layout " +
               std::string(name(w.layout))};
}

Status launch_product(DType dtype, const MarlinProduct& p, std::byte* workspace, bool many,
                      cudaStream_t stream) {
  if (goes_to_one(p.tokens, dtype, p.cols)) return launch_marlin_one(dtype, p, stream);
  if (!many) return launch_marlin_few(dtype, p, stream);
  return launch_marlin_many(dtype, p, p.tokens, workspace, stream);
}

// Of activations in F16, where a product of `rows` rows takes them so, for up to `tokens`.
int64_t halves_workspace(const CudaWeight& w, int64_t tokens, int64_t rows) {
  if (w.layout != Layout::Marlin) return 0;
  const int64_t few = tokens > 1 && marlin_batch_runs() ? few_tokens_workspace(tokens, w.cols) : 0;
  const int64_t many = goes_to_many(tokens, rows, w) ? half_rows_bytes(tokens, w.cols) : 0;
  return few > many ? few : many;
}

bool to_library(const CudaMatmulArgs& a) {
  return a.library && goes_to_library(a.tokens, a.w);
}

// Whether one kernel takes both. The library takes them one after the other.
bool go_together(const CudaGateUpArgs& a) {
  return a.gate.dtype == a.up.dtype && a.gate.layout == a.up.layout &&
         a.gate.layout == Layout::Marlin && !goes_to_library(a.tokens, a.gate);
}

}  // namespace

bool cuda_matmul_takes(DType dtype, Layout layout) {
  if (layout == Layout::Marlin) return marlin_takes(dtype);
  return layout == Layout::Rows &&
         (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16);
}

int64_t cuda_matmul_workspace(const CudaMatmulArgs& a) {
  if (to_library(a)) return library_product_workspace(a.tokens, a.w);
  return halves_workspace(a.w, a.tokens, a.w.rows);
}

Status launch_matmul(const CudaMatmulArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(check_weight(a.w));
  if (a.w.layout == Layout::Rows) {
    PlainProduct p;
    p.w = a.w;
    p.row_count = a.w.rows;
    p.x = a.x;
    p.x_stride = a.x_stride;
    p.tokens = a.tokens;
    p.y = a.y;
    p.y_stride = a.y_stride;
    p.bias = a.bias;
    p.accumulate = a.accumulate;
    return launch_plain(p, stream);
  }
  KTX_TRY(check_workspace("matmul", a.workspace_bytes, cuda_matmul_workspace(a)));
  if (goes_to_batch(a.tokens)) {
    CudaFewProductsArgs few;
    few.x = {a.x, a.x_stride, a.tokens, nullptr, 0};
    few.outputs[0] = {a.w, a.y, a.y_stride, a.bias, a.accumulate};
    few.count = 1;
    few.workspace = a.workspace;
    few.workspace_bytes = a.workspace_bytes;
    return launch_few_products(few, stream);
  }
  if (to_library(a)) return launch_library_product(a, stream);
  MarlinProduct p = marlin_product(a.w, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
  p.bias = a.bias;
  p.accumulate = a.accumulate;
  return launch_product(a.w.dtype, p, a.workspace, goes_to_many(a.tokens, a.w.rows, a.w), stream);
}

int64_t cuda_matmul_heads_workspace(const CudaMatmulHeadsArgs&) {
  return 0;
}

Status launch_matmul_heads(const CudaMatmulHeadsArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(check_weight(a.w));
  if (a.w.layout == Layout::Rows) {
    PlainProduct p;
    p.w = a.w;
    p.row_begin = a.attrs.row_begin;
    p.row_count = a.attrs.row_count;
    p.heads = a.attrs.heads;
    p.x = a.x;
    p.x_stride = a.x_stride;
    p.x_head = a.attrs.x_stride;
    p.tokens = a.tokens;
    p.y = a.y;
    p.y_stride = a.y_stride;
    p.y_head = a.attrs.y_stride;
    return a.attrs.transposed ? launch_plain_transposed(p, stream) : launch_plain(p, stream);
  }
  if (a.attrs.transposed) return launch_marlin_transposed(a, stream);
  MarlinProduct p = marlin_product(a.w, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
  p.matrices = a.attrs.heads;
  p.x_head = a.attrs.x_stride;
  p.y_head = a.attrs.y_stride;
  p.row_begin = a.attrs.row_begin;
  p.row_count = a.attrs.row_count;
  return launch_product(a.w.dtype, p, a.workspace, false, stream);
}

int64_t cuda_gate_up_workspace(const CudaGateUpArgs& a) {
  if (go_together(a)) return halves_workspace(a.gate, a.tokens, 2 * a.gate.rows);
  CudaMatmulArgs product;
  product.tokens = a.tokens;
  product.w = a.gate;
  const int64_t gate = cuda_matmul_workspace(product);
  product.w = a.up;
  const int64_t up = cuda_matmul_workspace(product);
  return (gate > up ? gate : up) + workspace_aligned(a.tokens * a.gate.rows * 4);
}

Status launch_gate_up(const CudaGateUpArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(check_weight(a.gate));
  KTX_TRY(check_weight(a.up));
  KTX_TRY(check_workspace("gate_up", a.workspace_bytes, cuda_gate_up_workspace(a)));
  if (go_together(a) && goes_to_batch(a.tokens)) {
    return launch_few_gate_up({{a.x, a.x_stride, a.tokens, nullptr, 0},
                               a.gate,
                               a.up,
                               a.y,
                               a.y_stride,
                               a.workspace,
                               a.workspace_bytes},
                              stream);
  }
  if (go_together(a)) {
    MarlinProduct p = marlin_product(a.gate, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
    p.w[1] = reinterpret_cast<const uint8_t*>(a.up.data);
    p.matrix_bytes[1] = a.up.matrix_bytes;
    return launch_product(a.gate.dtype, p, a.workspace,
                          goes_to_many(a.tokens, 2 * a.gate.rows, a.gate), stream);
  }
  // Two products, up to the workspace.
  const int64_t up_bytes = workspace_aligned(a.tokens * a.up.rows * 4);
  CudaMatmulArgs product;
  product.x = a.x;
  product.x_stride = a.x_stride;
  product.tokens = a.tokens;
  product.workspace = a.workspace + up_bytes;
  product.workspace_bytes = a.workspace_bytes - up_bytes;
  product.w = a.up;
  product.y = reinterpret_cast<float*>(a.workspace);
  product.y_stride = a.up.rows;
  KTX_TRY(launch_matmul(product, stream));
  product.w = a.gate;
  product.y = a.y;
  product.y_stride = a.y_stride;
  KTX_TRY(launch_matmul(product, stream));
  RowsArgs swiglu;
  swiglu.in[0] = {a.y, a.y_stride};
  swiglu.in[1] = {reinterpret_cast<const float*>(a.workspace), a.up.rows};
  swiglu.y = a.y;
  swiglu.y_stride = a.y_stride;
  swiglu.width = a.gate.rows;
  swiglu.token_end = a.tokens;
  return find_cuda_rows(StepOp::Swiglu)(swiglu, stream);
}

}  // namespace ktx::kernels
