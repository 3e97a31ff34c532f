// The table of GPU kernels: every row is the choice for some steps on some machine, and its
// ranges leave nothing out.
#include "kernels/gpu/gpu_kernels.h"
#include "lib/formats/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ktx::kernels {
namespace {

GpuForm product(StepOp op, DType dtype, Layout layout, int64_t rows, int64_t cols) {
  GpuForm form;
  form.op = op;
  const size_t count = op == StepOp::ExpertsGateUp ? 2 : 1;
  form.weights.assign(count, {dtype, layout, rows, cols});
  if (op == StepOp::ExpertsGateUp || op == StepOp::ExpertsDown) {
    form.experts = 128;
    form.top_k = 8;
  }
  return form;
}

GpuForm fused(FusedOp op) {
  GpuForm form;
  form.fused = op;
  const GpuWeight w{DType::Q4_K, Layout::Marlin, 2048, 2048};
  const size_t products = op == FusedOp::Latent ? 2 : 3;
  form.weights.assign(op == FusedOp::GateUp ? 2 : products, w);
  if (op == FusedOp::SharedExperts) form.weights.resize(6, w);
  if (op == FusedOp::RouterProduct) form.weights = {{DType::F32, Layout::Rows, 128, 2048}};
  form.norm = true;
  form.experts = 128;
  form.top_k = 8;
  form.attention.heads = 16;
  form.attention.kv_heads = op == FusedOp::Latent ? 1 : 4;
  form.attention.key_dim = op == FusedOp::Latent ? 576 : 128;
  form.attention.value_dim = op == FusedOp::Latent ? 512 : 128;
  form.rope.head_dim = form.rope.rotary_dim = 128;
  form.alike = true;
  form.absorb = {.heads = 16,
                 .transposed = 1,
                 .row_begin = 0,
                 .row_count = 128,
                 .x_stride = 192,
                 .y_stride = 576};
  form.expand = {.heads = 16,
                 .transposed = 0,
                 .row_begin = 128,
                 .row_count = 128,
                 .x_stride = 512,
                 .y_stride = 128};
  if (op == FusedOp::DeltaNet) {
    form.delta = {.state = 1, .key_heads = 2, .value_heads = 4, .head_dim = 128};
    form.conv = {.state = 0, .channels = 8 * 128, .taps = 4};
  }
  if (op == FusedOp::Latent) {
    form.weights.assign(2, {DType::Q8_0, Layout::Marlin, 256, 512});
  }
  return form;
}

std::vector<GpuForm> forms() {
  std::vector<GpuForm> all;
  for (StepOp op :
       {StepOp::Matmul, StepOp::MatmulHeads, StepOp::ExpertsGateUp, StepOp::ExpertsDown}) {
    all.push_back(product(op, DType::Q4_K, Layout::Marlin, 4096, 4096));
    all.push_back(product(op, DType::Q8_0, Layout::Marlin, 4096, 131072));
  }
  all.push_back(product(StepOp::Matmul, DType::F16, Layout::Rows, 4096, 4096));
  GpuForm transposed = product(StepOp::MatmulHeads, DType::Q8_0, Layout::Marlin, 128, 512);
  transposed.transposed = true;
  all.push_back(transposed);
  for (const StepOpInfo& op : all_step_ops()) {
    GpuForm form;
    form.op = op.op;
    if (op.op == StepOp::SumExperts) continue;  // the host's
    if (op.op == StepOp::AllReduce) continue;   // no launch of one GPU (gpu_sums.h)
    constexpr StepOp kOfTheCpu[] = {StepOp::SelectiveScan, StepOp::AttendStreams,
                                    StepOp::EmbedNgrams, StepOp::DotStreams};
    if (std::ranges::count(kOfTheCpu, op.op) > 0) continue;
    if (!op.has(kProduct) && op.op != StepOp::MatmulHeads && op.op != StepOp::ExpertsDown) {
      all.push_back(form);
    }
  }
  for (const FusedOpInfo& op : all_fused_ops()) all.push_back(fused(op.op));
  return all;
}

TEST(GpuKernels, EveryRowIsAChoiceForSomeStepsOnSomeMachine) {
  std::set<GpuKernel> chosen;
  for (const GpuMachine& machine : gpu_generations()) {
    for (const GpuForm& form : forms()) {
      for (const GpuChoice& choice : choose_gpu_kernels(form, machine))
        chosen.insert(choice.kernel);
    }
  }
  for (const GpuKernelInfo& row : all_gpu_kernels()) {
    EXPECT_TRUE(chosen.count(row.kernel)) << "nothing chooses " << row.name;
  }
}

TEST(GpuKernels, SingleStepsHaveOneKernelThatNeedsNothingForAnyNumberOfRows) {
  for (const GpuMachine& machine : gpu_generations()) {
    for (const GpuForm& form : forms()) {
      if (form.fused || form.op == StepOp::Quantize || form.op == StepOp::Transfer) continue;
      const auto choices = choose_gpu_kernels(form, machine);
      for (int64_t rows : {1, 2, 3, 16, 17, 64, 65, 128, 256, 512, 1023, 1024, 4096, 100000}) {
        int count = 0;
        for (const GpuChoice& choice : choices) count += choice.needs == 0 && choice.rows.has(rows);
        EXPECT_EQ(count, 1) << info(form.op).name << " sm_" << machine.sm << " rows " << rows;
      }
    }
  }
}

TEST(GpuKernels, NamesAreUniqueAndFoundAgain) {
  std::set<std::string_view> names;
  for (const GpuKernelInfo& row : all_gpu_kernels()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(gpu_kernel_from_name(row.name), row.kernel);
    EXPECT_LE(row.least_sm, row.most_sm);
    EXPECT_FALSE(row.sentence.empty());
  }
  EXPECT_FALSE(gpu_kernel_from_name("gemm").has_value());
}

TEST(GpuKernels, NeedsAreWords) {
  EXPECT_EQ(needs_text(kNeedsWgmmaHalfCache), "wgmma,half_cache");
  EXPECT_EQ(needs_from_text("wgmma,half_cache"), uint32_t{kNeedsWgmmaHalfCache});
  EXPECT_EQ(needs_from_text(""), 0u);
  EXPECT_FALSE(needs_from_text("wgmma,").has_value() && needs_from_text("warp").has_value());
}

}  // namespace
}  // namespace ktx::kernels
