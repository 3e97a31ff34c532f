// From modules on several devices to steps: the weights of a step are where it runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "lib/passes/pass.h"
#include "tests/support/diag_text.h"
#include "tests/support/test_models.h"
#include "tests/unit/passes/rule_files.h"

namespace ktx::passes {
namespace {

constexpr const char* kAttentionOfOneLayerOnTheCpu =
    "- {match: {kind: attention, layers: 1..1}, replace: {device: cpu}}\n"
    "- {match: {name: \".\"}, replace: {device: cuda:0}}\n";

// The model's one rotary module serves attention on either device.
TEST(LowerToSteps, WeightsAreWhereTheirStepRuns) {
  for (const char* model : ktx::testing::present_models()) {
    SCOPED_TRACE(model);
    if (std::ranges::count(ktx::testing::kDeltaNetModels, std::string_view(model))) continue;
    CheckedFile file;
    build(file, ktx::testing::test_model_dir(model) + "/config.json");
    file.state.check.only = false;
    file.state.check.target_given = true;
    file.state.target.gpus = {{.name = "test",
                               .compute_major = 9,
                               .compute_minor = 0,
                               .memory_bytes = uint64_t{1} << 42}};
    rules::add_rules_text(file.state.rules, kAttentionOfOneLayerOnTheCpu, "rules.yaml", file.diags);
    const Status status = run_passes(file.state, {});
    ASSERT_TRUE(status) << status.error().message << "\n" << ktx::testing::text_of(file.diags);
    int on_cpu = 0, on_gpu = 0;
    for (const program::Step& step : file.state.program.steps) {
      if (step.op != StepOp::Rope) continue;
      ++(step.device == "cpu" ? on_cpu : on_gpu);
      EXPECT_EQ(file.state.program.blobs[step.weights[0]].device, step.device) << step.module;
    }
    EXPECT_GT(on_cpu, 0);
    EXPECT_GT(on_gpu, 0);
  }
}

}  // namespace
}  // namespace ktx::passes
