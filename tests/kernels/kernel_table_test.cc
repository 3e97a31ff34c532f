// The tables: every family that a plan may name is there, and forcing an instruction
// set really changes the function that runs.
#include "kernels/kernel_table.h"

#include <cstdlib>

#include "kernels/attention/attention.h"
#include "kernels/attention/block_scores.h"
#include "kernels/attention/compress.h"
#include "kernels/attention/position_scores.h"
#include "kernels/delta_net/delta_net.h"
#include "kernels/embed/embed.h"
#include "kernels/embed/embed_grid.h"
#include "kernels/kernel_id.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/row_statistics.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_grid.h"
#include "kernels/router/router.h"
#include "kernels/rows/pool_rows.h"
#include "kernels/rows/rows.h"
#include "kernels/state_space/selective_scan.h"
#include "kernels/state_space/state_space.h"
#include "kernels/streams/residual_streams.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

bool found_by_an_op(std::string_view family) {
  const Isa isa = Isa::Scalar;
  return find_embed(family, isa).ok() || find_rms_norm(family, isa).ok() ||
         find_layer_norm(family, isa).ok() || find_quantize(family, isa).ok() ||
         find_rope(family, isa).ok() || find_kv_store(family, isa).ok() ||
         find_attention(family, isa).ok() || find_rows(family, isa).ok() ||
         find_pool_rows(family, isa).ok() || find_rope_grid(family, isa).ok() ||
         find_embed_grid(family, isa).ok() || find_router(family, isa).ok() ||
         find_group_experts(family, isa).ok() || find_sum_experts(family, isa).ok() ||
         find_causal_conv(family, isa).ok() || find_delta_rule(family, isa).ok() ||
         find_state_space(family, isa).ok() || find_selective_scan(family, isa).ok() ||
         find_compress(family, isa).ok() || find_stream_weights(family, isa).ok() ||
         find_altup_weights(family, isa).ok() || find_match_rms(family, isa).ok() ||
         find_gaussian_topk(family, isa).ok() || find_collapse_streams(family, isa).ok() ||
         find_mix_streams(family, isa).ok() || find_attend_streams(family, isa).ok() ||
         find_dot_streams(family, isa).ok() || find_position_scores(family, isa).ok() ||
         find_block_scores(family, isa).ok() || find_matmul(family, DType::Q6_K, isa).ok() ||
         find_matmul(family, DType::BF16, isa).ok() ||
         find_matmul_transposed(family, DType::Q4_K, isa).ok();
}

// But for those that a GPU does not need, those that are the host's, and those of layers that
// placement leaves to the CPU.
TEST(KernelTable, EveryStepOpHasAFamilyOnAGpu) {
  for (const StepOpInfo& op : all_step_ops()) {
    const std::string_view family = gpu_kernel_family(op.op);
    const bool of_cpu = op.op == StepOp::Quantize || op.op == StepOp::SumExperts ||
                        op.op == StepOp::SelectiveScan || op.op == StepOp::AttendStreams ||
                        op.op == StepOp::EmbedNgrams || op.op == StepOp::DotStreams;
    EXPECT_EQ(family.empty(), of_cpu) << op.name;
    EXPECT_TRUE(family.empty() || find_kernel_family(family)) << op.name << " " << family;
  }
}

TEST(KernelTable, EveryFamilyHasAScalarKernel) {
  for (const KernelFamily& family : all_kernel_families()) {
    EXPECT_EQ(find_kernel_family(family.name), &family) << family.name << " stands twice";
    if (family.device != FamilyDevice::Cpu) continue;
    EXPECT_TRUE(found_by_an_op(family.name)) << family.name;
  }
  EXPECT_EQ(find_kernel_family("matmul_rows_q9"), nullptr);
}

TEST(KernelTable, EveryStepOpHasAFamilyForEachPrecisionAndDtype) {
  for (const StepOpInfo& op : all_step_ops()) {
    if (op.op == StepOp::AllReduce) continue;  // of GPUs alone
    for (DType dtype : weight_dtypes()) {
      for (Precision precision : {Precision::Exact, Precision::Fast}) {
        for (bool transposed : {false, true}) {
          const std::string_view family = kernel_family(op.op, precision, dtype, transposed);
          const bool nothing = op.op == StepOp::Quantize && precision == Precision::Exact;
          EXPECT_EQ(family.empty(), nothing) << op.name;
          EXPECT_TRUE(nothing || find_kernel_family(family)) << op.name << " " << family;
        }
      }
    }
  }
  EXPECT_EQ(kernel_family(StepOp::Matmul, Precision::Fast, DType::Q4_K), "matmul_rows_q8");
  const auto family = [](Precision precision, DType dtype) {
    return kernel_family(StepOp::Matmul, precision, dtype, false, Layout::Panel16, ValueType::BF16);
  };
  EXPECT_EQ(family(Precision::Fast, DType::Q4_K), "matmul_panel16_tile_bf16");
  EXPECT_EQ(family(Precision::Exact, DType::Q4_K), "matmul_panel16_f32");
  EXPECT_EQ(find_kernel_family("matmul_panel16_tile_bf16")->input, ValueType::BF16);
  EXPECT_EQ(find_kernel_family("matmul_rows_q8")->input, ValueType::Q8);
  EXPECT_EQ(find_kernel_family("matmul_panel16_bf16")->input, ValueType::F32);
  EXPECT_EQ(kernel_family(StepOp::Matmul, Precision::Fast, DType::BF16), "matmul_rows_bf16");
  EXPECT_EQ(kernel_family(StepOp::Matmul, Precision::Exact, DType::BF16), "matmul_rows_f32");
  EXPECT_EQ(kernel_family(StepOp::Matmul, Precision::Fast, DType::F16), "matmul_rows_f32");
  EXPECT_EQ(kernel_family(StepOp::Matmul, Precision::Fast, DType::F16), "matmul_rows_f32");
}

TEST(KernelTable, AnIsaGetsItsOwnVariant) {
  constexpr Isa kBestInt8 = is_of_this_kind(ProcessorKind::X86) ? Isa::Avx512 : Isa::Dotprod;
  const MatmulKernel scalar = *find_matmul("matmul_rows_q8", DType::Q4_K, Isa::Scalar);
  const MatmulKernel avx2 = *find_matmul("matmul_rows_q8", DType::Q4_K, Isa::Avx2);
  const MatmulKernel best = *find_matmul("matmul_rows_q8", DType::Q4_K, kBestInt8);
  EXPECT_NE(scalar.of(1), avx2.of(1));
  EXPECT_NE(avx2.of(1), best.of(1));
  EXPECT_NE(*find_attention("attention", Isa::Scalar), *find_attention("attention", Isa::Avx2));
}

TEST(KernelTable, SaysWhichIsasThisMachineTested) {
  const std::vector<Isa> usable = usable_isas();
  for (const IsaInfo& row : all_isas()) {
    const bool runs = std::ranges::find(usable, row.isa) != usable.end();
    std::printf("  kernels with %-7s %s\n", std::string(row.name).c_str(),
                runs ? "tested" : "NOT tested: this machine lacks it");
  }
}

}  // namespace
}  // namespace ktx::kernels
