// matmul, matmul_heads and gate_up: which kernel takes them.
//
// One token: marlin_one. More: activations to F16 once, then marlin_few for up to 16, and
// marlin_many where it has blocks for the whole GPU; else marlin_few in pieces of 16.
#include "kernels/cuda/cuda_matmul.h"

#include "kernels/cuda/cuda_rows.h"
#include "kernels/cuda/half_rows.cuh"
#include "kernels/cuda/marlin_one.h"
#include "kernels/cuda/marlin_products.cuh"
#include "kernels/cuda/plain_products.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

Status launch_marlin_transposed(const CudaMatmulHeadsArgs& args, cudaStream_t stream);

namespace {

// The kernel of many tokens has blocks of 256 rows x 64 tokens: below about one for every
// processor, reading the weights from L2 once more for every 16 tokens is quicker.
bool goes_to_many(int64_t tokens, int64_t rows, const CudaWeight& w) {
  if (tokens <= kFewTokens || w.layout != Layout::Marlin || !marlin_many_runs(w.dtype)) return false;
  return ceil_div<int64_t>(tokens, 64) * ceil_div<int64_t>(rows, 256) >= multiprocessors() * 3 / 4;
}

// A row so long that shared memory has no place for it goes to the kernel of few tokens.
bool goes_to_one(int64_t tokens, DType dtype, int64_t cols) {
  return tokens == 1 && marlin_one_fits(dtype, cols, 1);
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

Status launch_product(DType dtype, MarlinProduct p, std::byte* workspace, bool many,
                      cudaStream_t stream) {
  if (goes_to_one(p.tokens, dtype, p.cols)) return launch_marlin_one(dtype, p, stream);
  CudaHalfRowsArgs rows;
  rows.x = p.x;
  rows.x_stride = p.x_stride;
  rows.tokens = p.tokens;
  rows.cols = p.cols;
  rows.xh = reinterpret_cast<uint16_t*>(workspace);
  p.half_cols = half_rows_cols(p.cols);
  rows.scale = reinterpret_cast<float*>(
      workspace + workspace_aligned(int64_t{p.tokens} * p.matrices * p.half_cols * 2));
  KTX_TRY(launch_half_rows_padded(rows, p.half_cols, p.matrices, p.x_head, stream));
  p.xh = rows.xh;
  p.x_scale = rows.scale;
  return many ? launch_marlin_many(dtype, p, stream) : launch_marlin_few(dtype, p, stream);
}

// Of activations in F16, where a product takes them so.
int64_t halves_workspace(const CudaWeight& w, int64_t tokens, int64_t heads) {
  if (w.layout != Layout::Marlin || goes_to_one(tokens, w.dtype, w.cols)) return 0;
  return half_rows_bytes(tokens * heads, w.cols);
}

bool same_form(const CudaWeight& a, const CudaWeight& b) {
  return a.dtype == b.dtype && a.layout == b.layout && a.layout == Layout::Marlin;
}

}  // namespace

bool cuda_matmul_takes(DType dtype, Layout layout) {
  if (layout == Layout::Marlin) return marlin_takes(dtype);
  return layout == Layout::Rows &&
         (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16);
}

int64_t cuda_matmul_workspace(const CudaMatmulArgs& a) {
  return halves_workspace(a.w, a.tokens, 1);
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
  MarlinProduct p = marlin_product(a.w, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
  p.bias = a.bias;
  p.accumulate = a.accumulate;
  return launch_product(a.w.dtype, p, a.workspace, goes_to_many(a.tokens, a.w.rows, a.w), stream);
}

int64_t cuda_matmul_heads_workspace(const CudaMatmulHeadsArgs& a) {
  return a.attrs.transposed ? 0 : halves_workspace(a.w, a.tokens, a.attrs.heads);
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
  KTX_TRY(check_workspace("matmul_heads", a.workspace_bytes, cuda_matmul_heads_workspace(a)));
  MarlinProduct p = marlin_product(a.w, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
  p.matrices = a.attrs.heads;
  p.x_head = a.attrs.x_stride;
  p.y_head = a.attrs.y_stride;
  p.row_begin = a.attrs.row_begin;
  p.row_count = a.attrs.row_count;
  return launch_product(a.w.dtype, p, a.workspace, false, stream);
}

int64_t cuda_gate_up_workspace(const CudaGateUpArgs& a) {
  const int64_t gate = halves_workspace(a.gate, a.tokens, 1);
  const int64_t up = halves_workspace(a.up, a.tokens, 1);
  int64_t bytes = gate > up ? gate : up;
  if (!same_form(a.gate, a.up)) bytes += workspace_aligned(a.tokens * a.gate.rows * 4);
  return bytes;
}

Status launch_gate_up(const CudaGateUpArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(check_weight(a.gate));
  KTX_TRY(check_weight(a.up));
  KTX_TRY(check_workspace("gate_up", a.workspace_bytes, cuda_gate_up_workspace(a)));
  if (same_form(a.gate, a.up)) {
    MarlinProduct p = marlin_product(a.gate, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
    p.w[1] = reinterpret_cast<const uint8_t*>(a.up.data);
    p.matrix_bytes[1] = a.up.matrix_bytes;
    return launch_product(a.gate.dtype, p, a.workspace, goes_to_many(a.tokens, 2 * a.gate.rows, a.gate),
                          stream);
  }
  // Of different formats: two products, up to the workspace.
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
  CudaTwoRowsArgs swiglu;
  swiglu.a = a.y;
  swiglu.a_stride = a.y_stride;
  swiglu.b = reinterpret_cast<const float*>(a.workspace);
  swiglu.b_stride = a.up.rows;
  swiglu.y = a.y;
  swiglu.y_stride = a.y_stride;
  swiglu.width = a.gate.rows;
  swiglu.tokens = a.tokens;
  return launch_swiglu(swiglu, stream);
}

}  // namespace ktx::kernels
