// The launches of cuda_fused_skinny_gemm.h: marlin_skinny_bytes, or records of x and marlin_skinny.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/product_forms.h"
#include "kernels/cuda/matmul/product_launcher.cuh"
#include "kernels/cuda/skinny_gemm/cuda_fused_skinny_gemm.h"
#include "kernels/cuda/skinny_gemm/marlin_skinny.h"
#include "kernels/cuda/skinny_gemm/skinny_x.h"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {
namespace {

bool takes(const CudaSkinnyX& x) {
  return marlin_skinny_runs() && aligned_16(x.x) && aligned_16(x.norm) && x.stride % 4 == 0;
}

BatchRows rows_of(const CudaWeight& w, float* y, int64_t y_stride) {
  BatchRows rows;
  rows.dtype = w.dtype;
  rows.w[0] = reinterpret_cast<const uint8_t*>(w.data);
  rows.strip_bytes = marlin_strip_bytes(w.dtype, w.cols);
  rows.row_count = static_cast<int>(w.rows);
  rows.y = y;
  rows.y_stride = y_stride;
  return rows;
}

// The product of the rows that `p` has, for as many tokens as a launch takes: with x as it is, or
// with records of it.
Status launch_piece(const CudaSkinnyX& x, int64_t cols, std::byte* workspace, BatchProduct& p,
                    cudaStream_t stream) {
  p.cols = static_cast<int>(cols);
  p.tokens = static_cast<int>(x.tokens);
  p.eps = x.eps;
  p.plain_x = x.x;
  p.x_stride = x.stride;
  p.norm_weight = x.norm;
  if (skinny_bytes_takes(p)) return launch_skinny_bytes(p, stream);
  BatchXArgs args;
  args.x = x.x;
  args.x_stride = x.stride;
  args.tokens = x.tokens;
  args.cols = cols;
  args.norm = x.norm;
  args.out = workspace;
  p.x = workspace;
  p.norm = x.norm != nullptr;
  KTX_TRY(launch_batch_x(args, stream));
  return launch_marlin_skinny(p, stream);
}

// In pieces of about equal numbers of tokens.
Status launch_product(const CudaSkinnyX& x, int64_t cols, std::byte* workspace, int64_t bytes,
                      BatchProduct& p, cudaStream_t stream) {
  KTX_TRY(check_workspace("products of few tokens", bytes, skinny_workspace(x.tokens, cols)));
  const int64_t each = ceil_div(x.tokens, ceil_div<int64_t>(x.tokens, kBatchTokens));
  for (int64_t done = 0; done < x.tokens; done += each) {
    CudaSkinnyX piece = x;
    piece.x += done * x.stride;
    piece.tokens = each < x.tokens - done ? each : x.tokens - done;
    KTX_TRY(launch_piece(piece, cols, workspace, p, stream));
    for (int i = 0; i < p.parts; ++i) p.rows[i].y += piece.tokens * p.rows[i].y_stride;
  }
  return {};
}

}  // namespace

int64_t skinny_workspace(int64_t tokens, int64_t cols) {
  return skinny_x_bytes(tokens < kBatchTokens ? tokens : kBatchTokens, cols);
}

bool skinny_products_take(const CudaSkinnyProductsArgs& a) {
  return a.count >= 1 && a.count <= kLaunchProducts && takes(a.x) &&
         products_go_together(a.outputs, a.count, is_marlin, batch_formats);
}

Status launch_skinny_products(const CudaSkinnyProductsArgs& a, CudaStream stream) {
  if (a.x.tokens == 0) return {};
  BatchProduct p;
  p.parts = a.count;
  for (int i = 0; i < a.count; ++i) {
    const CudaSkinnyOutput& output = a.outputs[i];
    p.rows[i] = rows_of(output.w, output.y, output.y_stride);
    p.rows[i].bias = output.bias;
    p.rows[i].accumulate = output.accumulate;
  }
  return launch_product(a.x, a.outputs[0].w.cols, a.workspace, a.workspace_bytes, p, stream);
}

bool skinny_gate_up_takes(const CudaSkinnyGateUpArgs& a) {
  return is_marlin(a.gate) && same_form(a.gate, a.up) && takes(a.x);
}

Status launch_skinny_gate_up(const CudaSkinnyGateUpArgs& a, CudaStream stream) {
  if (a.x.tokens == 0) return {};
  BatchProduct p;
  p.rows[0] = rows_of(a.gate, a.y, a.y_stride);
  p.rows[0].w[1] = reinterpret_cast<const uint8_t*>(a.up.data);
  p.rows[0].glu = a.glu;
  return launch_product(a.x, a.gate.cols, a.workspace, a.workspace_bytes, p, stream);
}

namespace {

bool takes_skinny(const ProductArgs& a) {
  return a.x_rows <= kCudaSkinnyTokens && marlin_skinny_runs();
}

Status launch_skinny(const ProductArgs& a, cudaStream_t stream) {
  CudaSkinnyProductsArgs skinny;
  skinny.x = {a.p.x, a.p.x_stride, a.x_rows, nullptr, 0};
  skinny.outputs[0] = {a.w, a.p.y, a.p.y_stride, a.p.bias[0], a.p.accumulate};
  skinny.count = 1;
  skinny.workspace = a.workspace;
  skinny.workspace_bytes = a.workspace_bytes;
  return launch_skinny_products(skinny, stream);
}

}  // namespace

const ProductLauncher product_launchers::marlin_skinny_gemm{
    .takes = takes_skinny,
    .workspace = [](int64_t x_rows,
                    const CudaWeight& w) { return skinny_workspace(x_rows, w.cols); },
    .launch = launch_skinny};

}  // namespace ktx::kernels
