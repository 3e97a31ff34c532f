// `layout` of a rule, from the file to the blobs of the step graph. Refused layouts are in
// tests/golden/rules/Q006*.
#include <gtest/gtest.h>

#include <optional>

#include "lib/formats/layout.h"
#include "lib/passes/asked_layout.h"
#include "tests/support/paths.h"
#include "tests/unit/passes/rule_files.h"

namespace ktx::passes {
namespace {

// The walk of a compiler over a bundled config with these rules.
struct Compiled {
  explicit Compiled(const std::string& rules, const char* model = "qwen3moe",
                    bool bf16_inputs = false, std::optional<DType> dtype = {}) {
    build(file, std::string(source_dir() + "/tests/models/") + model + "/config.json");
    for (ir::Module& module : file.state.modules.modules) {
      for (ir::Param& param : module.params) {
        if (dtype && param.name == "weight" && param.rows > 1) param.dtype = *dtype;
      }
    }
    file.state.check.only = false;
    file.state.bf16_inputs = bf16_inputs;
    rules::add_rules_text(file.state.rules, rules, "rules.yaml", file.diags);
    status = run_passes(file.state, {});
  }

  // The layout of a module's weight i, and the kernel that reads it in fast precision.
  std::string layout(const std::string& module, size_t i = 0) {
    for (const program::Step& step : file.state.program.steps) {
      if (step.module != module || step.weights.size() <= i || step.weights[i] < 0) continue;
      return std::string(name(file.state.program.blobs[step.weights[i]].layout)) + " " +
             step.kernels[1];
    }
    return "no such step";
  }

  CheckedFile file;
  Status status;
};

constexpr const char* kExperts = "model.layers.1.mlp.experts";
constexpr const char* kQ = "model.layers.1.self_attn.q_proj";

TEST(LayoutRules, WithoutOneProductsTakePanels) {
  Compiled compiled("- {match: {kind: experts}, replace: {device: cpu}}\n");
  ASSERT_TRUE(compiled.status) << compiled.status.error().message;
  EXPECT_EQ(compiled.layout(kExperts, 0), "panel16 matmul_panel16_q8");
  EXPECT_EQ(compiled.layout(kQ), "panel16 matmul_panel16_q8");
}

TEST(LayoutRules, ProductsOfPanelsTakeBf16InputsWhenAskedFor) {
  Compiled compiled("- {match: {kind: experts}, replace: {device: cpu, layout: rows}}\n",
                    "qwen3moe", true);
  ASSERT_TRUE(compiled.status) << compiled.status.error().message;
  EXPECT_EQ(compiled.layout(kQ), "panel16 matmul_panel16_tile_bf16");
  // Experts in rows need int8, and so does what reads the same input.
  EXPECT_EQ(compiled.layout(kExperts, 0), "rows matmul_rows_q8");
  for (const program::Step& step : compiled.file.state.program.steps) {
    if (step.op != StepOp::Quantize) continue;
    const program::Value& value = compiled.file.state.program.values[step.outputs[0].value];
    EXPECT_EQ(step.kernels[1], value.type == ValueType::BF16 ? "quantize_bf16" : "quantize_q8");
  }
}

// Which panels Q6_K stands in: those that the kernel of its inputs reads.
TEST(LayoutRules, PanelsOfQ6KAreAStreamForInt8AndNotForBf16) {
  const char* rules = "- {match: {kind: experts}, replace: {device: cpu}}\n";
  Compiled int8(rules, "qwen3moe", false, DType::Q6_K);
  ASSERT_TRUE(int8.status) << int8.status.error().message;
  EXPECT_EQ(int8.layout(kQ), "panel16s matmul_panel16s_q8");
  Compiled bf16(rules, "qwen3moe", true, DType::Q6_K);
  ASSERT_TRUE(bf16.status) << bf16.status.error().message;
  EXPECT_EQ(bf16.layout(kQ), "panel16 matmul_panel16_tile_bf16");
}

TEST(LayoutRules, RowsAreTheBytesOfTheGguf) {
  Compiled compiled("- {match: {kind: experts}, replace: {device: cpu, layout: rows}}\n");
  ASSERT_TRUE(compiled.status) << compiled.status.error().message;
  EXPECT_EQ(compiled.layout(kExperts, 0), "rows matmul_rows_q8");
  EXPECT_EQ(compiled.layout(kExperts, 1), "rows matmul_rows_q8");
  EXPECT_EQ(compiled.layout(kQ), "panel16 matmul_panel16_q8");
}

TEST(LayoutRules, ModulesWithoutARuleHaveThatOfTheContainerAboveThem) {
  Compiled compiled(
      "- {match: {kind: linear, layers: 0..0}, replace: {device: cpu}}\n"
      "- {match: {kind: attention}, replace: {device: cpu, layout: rows}}\n");
  ASSERT_TRUE(compiled.status) << compiled.status.error().message;
  EXPECT_EQ(compiled.layout(kQ), "rows matmul_rows_q8");
  EXPECT_EQ(compiled.layout("model.layers.0.self_attn.q_proj"), "panel16 matmul_panel16_q8");
  EXPECT_EQ(compiled.layout(kExperts, 0), "panel16 matmul_panel16_q8");
}

TEST(LayoutRules, DefaultsAskForWhatCanBeHad) {
  Compiled compiled(
      "version: 1\ndefaults: {layout: panel16}\nrules:\n"
      "- {match: {kind: experts}, replace: {device: cpu, layout: rows}}\n");
  ASSERT_TRUE(compiled.status) << compiled.status.error().message;
  EXPECT_EQ(compiled.layout(kQ), "panel16 matmul_panel16_q8");
  EXPECT_EQ(compiled.layout("model.layers.1.mlp.gate").substr(0, 5), "rows ");
  EXPECT_EQ(compiled.layout(kExperts, 0), "rows matmul_rows_q8");
}

// Also where a rule gives the device and not the layout.
TEST(LayoutRules, ALayoutOfDefaultsThatModulesOfARuleCannotHaveIsLeftOut) {
  Compiled device(
      "version: 1\ndefaults: {layout: marlin}\nrules:\n"
      "- {match: {kind: experts}, replace: {device: cpu}}\n");
  ASSERT_TRUE(device.status) << device.status.error().message;
  EXPECT_EQ(device.file.diags.errors(), 0);
  EXPECT_EQ(device.layout(kExperts, 0), "panel16 matmul_panel16_q8");
  Compiled type(
      "version: 1\ndefaults: {layout: panel16}\nrules:\n"
      "- {match: {kind: linear}, replace: {device: cpu}}\n",
      "qwen3moe", false, DType::IQ2_XS);
  ASSERT_TRUE(type.status) << type.status.error().message;
  EXPECT_EQ(type.file.diags.errors(), 0);
  EXPECT_EQ(type.layout(kQ).substr(0, 5), "rows ");
}

TEST(LayoutRules, WhichDevicesAndTypesHaveThem) {
  const auto obstacle = [](Layout layout, const char* device, DType dtype, int64_t rows = 256,
                           int64_t matrices = 1) {
    return layout_obstacle(layout, device, dtype, rows, 256, matrices);
  };
  EXPECT_EQ(obstacle(Layout::Rows, "cpu", DType::Q4_K), "");
  EXPECT_EQ(obstacle(Layout::Rows, "cuda:0", DType::F16), "");
  EXPECT_EQ(obstacle(Layout::Rows, "cuda:0", DType::Q4_K),
            "GPUs read Q4_K weights in tiles (marlin)");
  EXPECT_EQ(obstacle(Layout::Panel16, "cpu", DType::Q4_K), "");
  EXPECT_EQ(obstacle(Layout::Panel16, "cpu", DType::F32), "");
  EXPECT_NE(obstacle(Layout::Panel16, "cpu", DType::IQ2_XS), "");
  EXPECT_NE(obstacle(Layout::Panel16, "cpu", DType::Q4_K, 8), "");
  EXPECT_NE(obstacle(Layout::Panel16, "cpu", DType::Q4_K, 24, 4), "");
  EXPECT_EQ(obstacle(Layout::Panel16, "cpu", DType::Q4_K, 24, 1), "");
  EXPECT_EQ(obstacle(Layout::Marlin, "cuda:1", DType::Q4_K), "");
  EXPECT_EQ(obstacle(Layout::Marlin, "cpu", DType::Q4_K),
            "it is for GPUs, and the weights are on cpu");
}

TEST(LayoutRules, PanelsAreRefusedWhereAnotherStepReadsRows) {
  CheckedFile file;
  build(file, source_dir() + "/tests/models/deepseek2/config.json");
  file.state.check.only = false;
  // The unsplit latent projection of MLA: its key part is a transposed product.
  for (ir::Module& module : file.state.modules.modules) {
    if (module.role != ir::Role::KvBProj) continue;
    const auto& mla =
        std::get<ir::MlaInfo>(file.state.modules.modules[static_cast<size_t>(module.parent)].info);
    ir::Param both = *module.param("v_b");
    both.name = "weight";
    both.matrices = 1;
    both.rows = int64_t{mla.heads} * (mla.nope_dim + mla.value_dim);
    both.cols = mla.kv_lora_rank;
    module.params = {both};
  }
  rules::add_rules_text(file.state.rules,
                        "- {match: {kind: kv_b_proj}, replace: {device: cpu, layout: panel16}}\n",
                        "rules.yaml", file.diags);
  const Status status = run_passes(file.state, {});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("another step reads its rows"), std::string::npos)
      << status.error().message;
}

}  // namespace
}  // namespace ktx::passes
