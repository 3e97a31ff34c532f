// The launches of cuda_fused_gemv.h: all but the router's product are marlin_gemv.
#include "kernels/cuda/gemv/cuda_fused_gemv.h"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/gemv/marlin_gemv.h"
#include "kernels/cuda/matmul/product_forms.h"
#include "kernels/cuda/matmul/rows_gemm.cuh"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

bool marlin(const CudaWeight& w, int x_rows) {
  return is_marlin(w) && marlin_gemv_fits(w.dtype, w.cols, x_rows);
}

OneRows rows_of(const CudaWeight& w, float* y) {
  OneRows rows;
  rows.dtype = w.dtype;
  rows.w[0] = reinterpret_cast<const uint8_t*>(w.data);
  rows.matrix_bytes = w.matrix_bytes;
  rows.strip_bytes = marlin_strip_bytes(w.dtype, w.cols);
  rows.row_count = static_cast<int>(w.rows);
  rows.y = y;
  return rows;
}

OneProduct product_of(const CudaOneX& x, int64_t cols) {
  OneProduct p;
  p.cols = static_cast<int>(cols);
  p.x = x.x;
  p.norm = x.norm;
  p.eps = x.eps;
  return p;
}

}  // namespace

bool one_products_take(const CudaOneProductsArgs& a) {
  return a.count >= 1 && a.count <= kLaunchProducts && aligned_16(a.x.x) && aligned_16(a.x.norm) &&
         products_go_together(
             a.outputs, a.count, [](const CudaWeight& w) { return marlin(w, 1); }, one_formats);
}

static OneProduct one_product(const CudaOneProductsArgs& a) {
  OneProduct p = product_of(a.x, a.outputs[0].w.cols);
  p.parts = a.count;
  for (int i = 0; i < a.count; ++i) {
    p.rows[i] = rows_of(a.outputs[i].w, a.outputs[i].y);
    p.rows[i].bias[0] = a.outputs[i].bias;
    p.rows[i].accumulate = a.outputs[i].accumulate;
  }
  return p;
}
Status launch_one_products(const CudaOneProductsArgs& a, CudaStream stream) {
  return launch_marlin_gemv(one_product(a), stream);
}

bool one_gate_up_takes(const CudaOneGateUpArgs& a) {
  return marlin(a.gate, 1) && same_form(a.gate, a.up) && aligned_16(a.x.x) && aligned_16(a.x.norm);
}

static OneProduct one_product(const CudaOneGateUpArgs& a) {
  OneProduct p = product_of(a.x, a.gate.cols);
  p.rows[0] = rows_of(a.gate, a.y);
  p.rows[0].glu = a.glu;
  p.rows[0].w[1] = reinterpret_cast<const uint8_t*>(a.up.data);
  return p;
}
Status launch_one_gate_up(const CudaOneGateUpArgs& a, CudaStream stream) {
  return launch_marlin_gemv(one_product(a), stream);
}

bool one_router_takes(const CudaOneRouterArgs& a) {
  return a.w.layout == Layout::Rows && a.w.dtype == DType::F32 && a.w.cols % 4 == 0 &&
         a.x_stride % 4 == 0 && a.w.rows >= 1 && aligned_16(a.x.x) && aligned_16(a.x.norm) &&
         aligned_16(a.w.data) && a.x.norm;
}

Status launch_one_router(const CudaOneRouterArgs& a, CudaStream stream) {
  PlainProduct p;
  p.w = a.w;
  p.row_count = a.w.rows;
  p.x = a.x.x;
  p.x_stride = a.x_stride;
  p.tokens = a.tokens;
  p.y = a.logits;
  p.y_stride = a.logits_stride;
  p.bias = a.bias;
  return launch_plain_normed(p, a.x.norm, a.x.eps, a.normed, a.normed_stride, stream);
}

bool one_choices_take(const CudaOneChoicesArgs& a) {
  return marlin(a.gate, 1) && same_form(a.gate, a.up) && aligned_16(a.x) && a.x_stride % 4 == 0 &&
         a.h_stride % 4 == 0 && a.router.attrs.experts <= 256 &&
         a.router.attrs.top_k <= kCudaMaxTopK;
}

static OneProduct one_product(const CudaOneChoicesArgs& a) {
  OneProduct p = product_of({a.x, nullptr, 0}, a.gate.cols);
  p.work = OneWork::Choices;
  p.count = static_cast<int>(a.router.tokens);
  p.x_stride = a.x_stride;
  p.router = a.router;
  p.rows[0] = rows_of(a.gate, a.h);
  p.rows[0].w[1] = reinterpret_cast<const uint8_t*>(a.up.data);
  p.rows[0].y_stride = a.h_stride;
  p.rows[0].glu = a.glu;
  p.rows[0].bias[0] = a.gate_bias;
  p.rows[0].bias[1] = a.up_bias;
  p.rows[0].bias_stride = a.gate.rows;
  return p;
}
Status launch_one_choices(const CudaOneChoicesArgs& a, CudaStream stream) {
  return launch_marlin_gemv(one_product(a), stream);
}

bool one_sum_takes(const CudaOneSumArgs& a) {
  return marlin(a.down, a.attrs.top_k) && aligned_16(a.h) && a.h_stride % 4 == 0 &&
         a.attrs.top_k <= kCudaMaxTopK;
}

static OneProduct one_product(const CudaOneSumArgs& a) {
  OneProduct p = product_of({a.h, nullptr, 0}, a.down.cols);
  p.work = OneWork::Sum;
  p.count = static_cast<int>(a.tokens);
  p.x_stride = a.h_stride;
  p.router.attrs.top_k = a.attrs.top_k;
  p.router.ids = const_cast<int32_t*>(a.ids);
  p.router.weights = const_cast<float*>(a.weights);
  p.rows[0] = rows_of(a.down, a.y);
  p.rows[0].y_stride = a.y_stride;
  p.rows[0].accumulate = a.attrs.accumulate != 0;
  p.rows[0].bias[0] = a.bias;
  p.rows[0].bias_stride = a.down.rows;
  return p;
}
Status launch_one_sum(const CudaOneSumArgs& a, CudaStream stream) {
  return launch_marlin_gemv(one_product(a), stream);
}

static OneShared one_shared(const CudaOneShared& a) {
  OneShared shared;
  shared.h = a.h, shared.h_stride = a.h_stride;
  shared.gate = a.score_weight;
  shared.score = a.score, shared.score_stride = a.score_stride;
  return shared;
}

bool one_shared_takes(const CudaOneChoicesArgs& choices, const CudaOneSumArgs& sum,
                      const CudaOneShared& a) {
  const bool plain = !choices.gate_bias && !choices.up_bias && !sum.bias;
  return plain && same_form(a.gate, choices.gate) && same_form(a.up, choices.gate) &&
         same_form(a.down, sum.down) && marlin(a.down, sum.attrs.top_k + 1) && aligned_16(a.h) &&
         a.h_stride % 4 == 0 && aligned_16(a.score_weight);
}

Status launch_one_experts(const CudaOneChoicesArgs& choices, const CudaOneSumArgs& sum,
                          const CudaOneShared* shared, CudaStream stream) {
  OneProduct first = one_product(choices), second = one_product(sum);
  if (shared) {
    first.shared = second.shared = one_shared(*shared);
    first.shared.w[0] = reinterpret_cast<const uint8_t*>(shared->gate.data);
    first.shared.w[1] = reinterpret_cast<const uint8_t*>(shared->up.data);
    second.shared.w[0] = reinterpret_cast<const uint8_t*>(shared->down.data);
  }
  second.ids_ahead = sum.ids == choices.router.ids && sum.weights == choices.router.weights;
  KTX_TRY(launch_marlin_gemv(first, stream));
  return launch_marlin_gemv(second, stream);
}

}  // namespace ktx::kernels
