// experts_gate_up and experts_down: marlin products over the pieces of pairs that each
// expert has, and the sum of a token's experts.
//
// Which kernel takes the pairs is said by the launch (kernels/gpu/gpu_kernels.def). down writes one
// row per pair to the workspace; the rows of a token are then added in rising expert number, which
// is the order of their places in `order`.
#include "kernels/cuda/experts/cuda_experts.h"

#include "kernels/cuda/common/launch_forms.h"
#include "kernels/cuda/matmul/half_rows.cuh"
#include "kernels/cuda/matmul/product_forms.h"
#include "kernels/cuda/matmul/product_launcher.cuh"
#include "kernels/cuda/rows/cuda_rows.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

Status check(const char* op, const CudaWeight& w, const ExpertsAttrs& attrs, int64_t has,
             int64_t needs) {
  if (w.layout != Layout::Marlin || !marlin_takes(w.dtype)) {
    return Error{std::string(op) + ": no GPU product takes experts of " +
                 std::string(name(w.dtype)) + " in layout " + std::string(name(w.layout))};
  }
  if (attrs.experts > kCudaMaxExperts || attrs.top_k > kCudaMaxTopK) {
    return Error{std::string(op) + ": " + std::to_string(attrs.experts) + " experts, top " +
                 std::to_string(attrs.top_k) + ", at most " + std::to_string(kCudaMaxExperts) +
                 " and " + std::to_string(kCudaMaxTopK)};
  }
  return check_workspace(op, has, needs);
}

// The product over the pairs of all tokens; x, y and what is added are not set yet.
ProductArgs experts_product(const CudaWeight& w, const ExpertsAttrs& attrs, int64_t tokens,
                            const int32_t* order, const int32_t* offsets) {
  ProductArgs a{.w = w, .p = product_with(w)};
  a.p.tokens = static_cast<int>(tokens) * attrs.top_k;
  a.p.order = order;
  a.p.offsets = offsets;
  a.p.experts = attrs.experts;
  return a;
}

Status launch_product(GpuKernel kernel, StepOp op, const ProductArgs& a, cudaStream_t stream) {
  if (const ProductLauncher* launcher = product_launcher(kernel, op)) {
    return launcher->launch(a, stream);
  }
  return Error{"kernel " + std::string(info(kernel).name) + " takes no experts"};
}
int64_t product_workspace(GpuKernel kernel, StepOp op, int64_t rows, const CudaWeight& w) {
  const ProductLauncher* launcher = product_launcher(kernel, op);
  return launcher ? launcher->workspace_bytes(rows, w) : 0;
}

struct Combine {
  const float* partial;   // [pairs, width]
  const int32_t* places;  // [pairs], -1: of no expert
  const float* weights;
  int top_k, width;
  float* y;
  int64_t y_stride;
  bool accumulate;
};

// y[t] (+)= the rows of t's pairs, in the order of their places. One thread a column.
constexpr int kCombineThreads = 256;
__global__ void __launch_bounds__(kCombineThreads) combine_experts(Combine p) {
  begin_kernel();
  __shared__ int sorted[kCudaMaxTopK];
  __shared__ int live;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_pair = int64_t{blockIdx.y} * p.top_k;
  if (thread < 32) {
    const int place = thread < p.top_k ? p.places[first_pair + thread] : -1;
    int before = 0;
    for (int o = 0; o < p.top_k; ++o) {
      const int other = __shfl_sync(~0u, place, o);
      before += other >= 0 && other < place;
    }
    if (place >= 0) sorted[before] = thread;
    const unsigned all = __ballot_sync(~0u, place >= 0);
    if (thread == 0) live = __popc(all);
  }
  __syncthreads();
  const int n = static_cast<int>(blockIdx.x) * kCombineThreads + thread;
  if (n >= p.width) return;
  float* y = p.y + blockIdx.y * p.y_stride + n;
  float sum = p.accumulate ? *y : 0;
  for (int i = 0; i < live; ++i) {
    const int64_t pair = first_pair + sorted[i];
    sum += p.weights[pair] * p.partial[pair * p.width + n];
  }
  *y = sum;
}

}  // namespace

int64_t cuda_experts_gate_up_workspace(const CudaExpertsGateUpArgs& a) {
  const int64_t pairs = a.tokens * a.attrs.top_k;
  int64_t bytes = product_workspace(kernel_of(a, GpuKernel::MarlinFewGemm), StepOp::ExpertsGateUp,
                                    a.tokens, a.gate);
  if (!same_form(a.gate, a.up)) bytes += workspace_aligned(pairs * a.gate.rows * 4);
  return bytes;
}

Status launch_experts_gate_up(const CudaExpertsGateUpArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  const int64_t needs = cuda_experts_gate_up_workspace(a);
  KTX_TRY(check("experts_gate_up", a.gate, a.attrs, a.workspace_bytes, needs));
  KTX_TRY(check("experts_gate_up", a.up, a.attrs, a.workspace_bytes, needs));
  const int64_t pairs = a.tokens * a.attrs.top_k;
  const GpuKernel kernel = kernel_of(a, GpuKernel::MarlinFewGemm);
  const auto run = [&](const CudaWeight& w, const float* bias, const CudaWeight* up, float* y,
                       int64_t y_stride, std::byte* workspace) -> Status {
    ProductArgs product = experts_product(w, a.attrs, a.tokens, a.order, a.offsets);
    product.x_rows = a.tokens;
    product.workspace = workspace;
    MarlinProduct& p = product.p;
    p.x = a.x;
    p.x_stride = a.x_stride;
    p.x_div = a.attrs.top_k;
    p.y = y;
    p.y_stride = y_stride;
    p.bias[0] = bias;
    p.bias_stride = a.gate.rows;
    p.glu = a.attrs.glu();
    if (up) {
      p.bias[1] = a.up_bias;
      p.w[1] = reinterpret_cast<const uint8_t*>(up->data);
      p.matrix_bytes[1] = up->matrix_bytes;
    }
    return launch_product(kernel, StepOp::ExpertsGateUp, product, stream);
  };
  if (same_form(a.gate, a.up)) {
    return run(a.gate, a.gate_bias, &a.up, a.h, a.h_stride, a.workspace);
  }
  std::byte* rest = a.workspace + workspace_aligned(pairs * a.up.rows * 4);
  float* up = reinterpret_cast<float*>(a.workspace);
  KTX_TRY(run(a.up, a.up_bias, nullptr, up, a.up.rows, rest));
  KTX_TRY(run(a.gate, a.gate_bias, nullptr, a.h, a.h_stride, rest));
  RowsArgs glu;
  glu.attrs = a.attrs.glu();
  glu.in[0] = {a.h, a.h_stride};
  glu.in[1] = {up, a.up.rows};
  glu.y = a.h;
  glu.y_stride = a.h_stride;
  glu.width = a.gate.rows;
  glu.token_end = pairs;
  return find_cuda_rows(StepOp::Glu)(glu, stream);
}

int64_t cuda_experts_down_workspace(const CudaExpertsDownArgs& a) {
  const int64_t pairs = a.tokens * a.attrs.top_k;
  return workspace_aligned(pairs * a.down.rows * 4) + workspace_aligned(pairs * 4) +
         product_workspace(kernel_of(a, GpuKernel::MarlinFewGemm), StepOp::ExpertsDown, pairs,
                           a.down);
}

Status launch_experts_down(const CudaExpertsDownArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(
      check("experts_down", a.down, a.attrs, a.workspace_bytes, cuda_experts_down_workspace(a)));
  const int64_t pairs = a.tokens * a.attrs.top_k;
  float* partial = reinterpret_cast<float*>(a.workspace);
  std::byte* rest = a.workspace + workspace_aligned(pairs * a.down.rows * 4);
  ProductArgs product = experts_product(a.down, a.attrs, a.tokens, a.order, a.offsets);
  MarlinProduct& p = product.p;
  p.x = a.h;
  p.x_stride = a.h_stride;
  p.y = partial;
  p.y_stride = a.down.rows;
  p.bias[0] = a.bias;
  p.bias_stride = a.down.rows;
  p.places = reinterpret_cast<int32_t*>(rest);
  product.x_rows = pairs;
  product.workspace = rest + workspace_aligned(pairs * 4);
  KTX_TRY(
      launch_product(kernel_of(a, GpuKernel::MarlinFewGemm), StepOp::ExpertsDown, product, stream));
  Combine combine;
  combine.partial = partial;
  combine.places = p.places;
  combine.weights = a.weights;
  combine.top_k = a.attrs.top_k;
  combine.width = static_cast<int>(a.down.rows);
  combine.y = a.y;
  combine.y_stride = a.y_stride;
  combine.accumulate = a.attrs.accumulate != 0;
  const dim3 grid(ceil_div(combine.width, kCombineThreads), static_cast<unsigned>(a.tokens));
  return launch("experts_down: sum of experts", combine_experts, grid, kCombineThreads, 0, stream,
                combine);
}

}  // namespace ktx::kernels
