// Launches of products as the choice of kernels sees them (kernels/gpu/gpu_kernels.h).
#pragma once

#include "kernels/cuda/common/this_gpu.h"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/gpu/gpu_kernels.h"

namespace ktx::kernels {

inline GpuWeight gpu_weight(const CudaWeight& w) {
  return {w.dtype, w.layout, w.rows, w.cols};
}

inline GpuForm gpu_form(const CudaMatmulArgs& a) {
  GpuForm form;
  form.op = StepOp::Matmul;
  form.weights = {gpu_weight(a.w)};
  return form;
}
inline GpuForm gpu_form(const CudaMatmulHeadsArgs& a) {
  GpuForm form;
  form.op = StepOp::MatmulHeads;
  form.weights = {gpu_weight(a.w)};
  form.transposed = a.attrs.transposed != 0;
  return form;
}
inline GpuForm gpu_form(const CudaExpertsGateUpArgs& a) {
  GpuForm form;
  form.op = StepOp::ExpertsGateUp;
  form.weights = {gpu_weight(a.gate), gpu_weight(a.up)};
  form.experts = a.attrs.experts;
  form.top_k = a.attrs.top_k;
  return form;
}
inline GpuForm gpu_form(const CudaExpertsDownArgs& a) {
  GpuForm form;
  form.op = StepOp::ExpertsDown;
  form.weights = {gpu_weight(a.down)};
  form.experts = a.attrs.experts;
  form.top_k = a.attrs.top_k;
  return form;
}

// The kernel that the launch names, else the first choice here. `none`: where there is none, for
// the launcher to refuse the weights with.
template <class Args>
GpuKernel kernel_of(const Args& a, GpuKernel none) {
  if (a.kernel) return *a.kernel;
  const Result<GpuKernel> kernel = kernel_here(gpu_form(a), a.tokens);
  return kernel.ok() ? *kernel : none;
}

}  // namespace ktx::kernels
