// The launches of cuda_fused_gemm.h: rows in F16, then a launch for each format.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/gemm/cuda_fused_gemm.h"
#include "kernels/cuda/gemm/wide_launch.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"
#include "kernels/cuda/matmul/product_forms.h"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

namespace {

bool takes(const CudaSkinnyX& x) {
  return marlin_gemm_wgmma_runs() && aligned_16(x.x) && aligned_16(x.norm) && x.stride % 4 == 0;
}

// A product of x, whose rows in F16 are made in the workspace.
Result<MarlinProduct> product_of(const CudaSkinnyX& x, int64_t cols, std::byte* workspace,
                                 int64_t bytes, cudaStream_t stream) {
  KTX_TRY(check_workspace("products of many tokens", bytes, gemm_workspace(x.tokens, cols)));
  MarlinProduct p;
  p.x = x.x;
  p.x_stride = x.stride;
  p.tokens = static_cast<int>(x.tokens);
  p.cols = static_cast<int>(cols);
  KTX_TRY(take_half_rows(p, x.tokens, HalfOrder::Panels, {x.norm, x.eps}, workspace, stream));
  return p;
}

}  // namespace

int64_t gemm_workspace(int64_t tokens, int64_t cols) {
  return half_rows_bytes(tokens, cols);
}

bool gemm_products_take(const CudaSkinnyProductsArgs& a) {
  if (a.count < 1 || a.count > kLaunchProducts || !takes(a.x)) return false;
  for (int i = 0; i < a.count; ++i) {
    const CudaWeight& w = a.outputs[i].w;
    if (!is_marlin(w) || w.cols != a.outputs[0].w.cols) return false;
  }
  return true;
}

Status launch_gemm_products(const CudaSkinnyProductsArgs& a, CudaStream stream) {
  if (a.x.tokens == 0) return {};
  const int64_t cols = a.outputs[0].w.cols;
  MarlinProduct p = KTX_TRY(product_of(a.x, cols, a.workspace, a.workspace_bytes, stream));
  for (int i = 0; i < a.count; ++i) {
    const DType dtype = a.outputs[i].w.dtype;
    const auto same = [&](int j) { return a.outputs[j].w.dtype == dtype; };
    bool done = false;
    for (int j = 0; j < i; ++j) done = done || same(j);
    if (done) continue;
    WideParts parts;
    int blocks = 0;
    for (int j = i; j < a.count; ++j) {
      const CudaSkinnyOutput& output = a.outputs[j];
      if (!same(j)) continue;
      blocks = parts.add(
          {reinterpret_cast<const uint8_t*>(output.w.data), static_cast<int>(output.w.rows),
           output.y, output.y_stride, output.bias, output.accumulate},
          blocks);
    }
    p.strip_bytes = marlin_strip_bytes(dtype, cols);
    KTX_TRY(launch_marlin_gemm_wgmma(dtype, p, parts, stream));
  }
  return {};
}

bool gemm_gate_up_takes(const CudaSkinnyGateUpArgs& a) {
  return is_marlin(a.gate) && same_form(a.gate, a.up) && takes(a.x);
}

Status launch_gemm_gate_up(const CudaSkinnyGateUpArgs& a, CudaStream stream) {
  if (a.x.tokens == 0) return {};
  MarlinProduct p = KTX_TRY(product_of(a.x, a.gate.cols, a.workspace, a.workspace_bytes, stream));
  p.w[0] = reinterpret_cast<const uint8_t*>(a.gate.data);
  p.w[1] = reinterpret_cast<const uint8_t*>(a.up.data);
  p.strip_bytes = marlin_strip_bytes(a.gate.dtype, a.gate.cols);
  p.row_count = static_cast<int>(a.gate.rows);
  p.y = a.y;
  p.y_stride = a.y_stride;
  p.glu = a.glu;
  return launch_marlin_gemm_wgmma(a.gate.dtype, p, {}, stream);
}

}  // namespace ktx::kernels
