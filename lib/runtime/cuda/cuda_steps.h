// Steps of a plan bound to GPU memory and launchers: the GPU's side of cpu_step.h.
//
// One small class per op lives in cuda_<op>.cc, each behind a function of the table in
// cuda_ops.def. launch() fills in the rows of the pass and calls the launcher.
#pragma once

#include <memory>

#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/delta_net/cuda_delta_net.h"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/state_space/cuda_state_space.h"
#include "lib/runtime/cuda/cuda_gpu.h"
#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

// An activation in GPU memory.
struct CudaView {
  std::byte* data = nullptr;  // null: absent
  int64_t stride = 0;         // elements from one whole row to the next
  int64_t width = 0;
  int64_t rows_per_row = 1;
  RowKind rows = RowKind::Token;
  bool whole() const { return width == stride; }
  float* f32() const { return reinterpret_cast<float*>(data); }
  int32_t* i32() const { return reinterpret_cast<int32_t*>(data); }
};

// GpuBindContext with the queries that the ops make.
class CudaBind {
 public:
  CudaBind(CudaGpu& gpu, const GpuBindContext& context) : gpu_(gpu), context_(context) {}

  CudaView input(int i) const { return view(context_.step.inputs, i); }
  CudaView output(int i) const { return view(context_.step.outputs, i); }
  int weight_count() const { return static_cast<int>(context_.step.weights.size()); }
  Result<kernels::CudaWeight> weight(int i) const;
  Result<kernels::CudaWeight> product_weight(int i) const;  // that products can read
  // A vector as floats: a norm's weight, a bias, rotary frequencies. Null when absent;
  // vectors in other formats are decoded into memory that `keep` holds.
  Result<const float*> vector(int i, GpuMemory& keep) const;
  bool has_weight(int i) const;
  std::span<const std::byte> weight_in_plan(int i) const;  // as the plan's file has it
  kernels::CudaKvView kv_view(int32_t slot) const;
  kernels::CudaStates states(int32_t state) const;
  template <class Attrs>
  Attrs attrs() const {
    return std::get<Attrs>(context_.step.attrs);
  }
  StepOp op() const { return context_.step.op; }
  const StepAttrs& any_attrs() const { return context_.step.attrs; }
  const GpuBatch& batch() const { return context_.batch; }
  const plan::PlanFacts& facts() const { return context_.plan.facts; }
  uint64_t* expert_counts() const { return context_.expert_counts; }
  bool streamed() const { return context_.streamed; }
  CudaGpu& gpu() const { return gpu_; }
  const program::Launch& launch() const { return context_.launch; }
  kernels::GpuKernel kernel() const;  // of the launch

 private:
  CudaView view(const std::vector<program::View>& operands, int i) const;
  const program::Blob* blob(int i) const;  // null: absent
  std::byte* memory(int i) const;          // of a weight that is there

  CudaGpu& gpu_;
  const GpuBindContext& context_;
};

Status require_whole(const CudaView& view, const char* name);

// What a step of the op passes to its launcher, except for the tokens.
Result<kernels::CudaMatmulHeadsArgs> matmul_heads_args(const CudaBind& context);
Status require_no_factors(const CudaBind& gate_up);  // of experts_gate_up
struct RouterVectors {
  GpuMemory bias, factors;
};
// All but ids and weights.
Result<kernels::CudaRouterArgs> router_args(const CudaBind& router, RouterVectors& keep);
kernels::CudaAttentionArgs attention_args(const CudaBind& context, const AttentionAttrs& attrs);
// Enough for so many tokens and for fewer.
int64_t attention_workspace(kernels::CudaAttentionArgs args);

using MakeCudaStep = Result<std::unique_ptr<GpuStep>> (*)(const CudaBind&);

// A launch of a single step.
Result<std::unique_ptr<GpuStep>> make_cuda_step(CudaGpu& gpu, const GpuBindContext& context);
// A launch of a fused op (cuda_fused.cc).
Result<std::unique_ptr<GpuStep>> make_cuda_fused(CudaGpu& gpu, const GpuBindContext& context);

// A step whose class has `Status bind(const CudaBind&)`.
template <class Step>
Result<std::unique_ptr<GpuStep>> make_bound(const CudaBind& context) {
  auto step = std::make_unique<Step>();
  KTX_TRY(step->bind(context));
  return std::unique_ptr<GpuStep>(std::move(step));
}

#define KTX_CUDA_OP(op, make) extern const MakeCudaStep make;
#include "lib/runtime/cuda/cuda_ops.def"
#undef KTX_CUDA_OP
extern const MakeCudaStep make_cuda_rows;  // any row op

}  // namespace ktx::runtime
