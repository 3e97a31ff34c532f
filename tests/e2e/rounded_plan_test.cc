// Plans whose weights a rule has rounded: `layout: int4_g64, lossy: allow`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lib/runtime/engine/engine.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

class RoundedPlan : public ::testing::Test {
 protected:
  Finished compile(const std::string& name, const std::string& replace) {
    const std::string rules =
        dir_.write(name + ".yaml", "version: 1\nrules:\n  - match: {name: \".\"}\n    replace: {" +
                                       replace + "}\n");
    return run_program({ktx_compile(), model_gguf("qwen3moe"), rules,
                        "--target=" + source_dir() + "/targets/h200.yaml", "-o", plan(name)});
  }
  std::string plan(const std::string& name) const { return dir_.path(name + ".ktxplan"); }

  std::vector<float> logits(const std::string& name) {
    runtime::EngineOptions options;
    options.threads = 2;
    options.precision = runtime::Precision::Exact;
    options.open_gpu = HostGpu::opener({}, &log_);
    const auto engine = runtime::Engine::open(plan(name), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    runtime::Sequence sequence = (*engine)->new_sequence();
    const std::vector<int32_t> ids = {1, 5, 9, 70, 3, 2, 8};
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    EXPECT_TRUE((*engine)->forward({&item, 1}).ok());
    const auto row = (*engine)->logits(0);
    return {row.begin(), row.end()};
  }

  TempDir dir_;
  HostGpuLog log_;
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

TEST_F(RoundedPlan, IsTheSameInEveryLayoutAndTellsItsErrors) {
  ASSERT_EQ(compile("as_it_is", "device: cpu").status, 0);
  const std::vector<float> before = logits("as_it_is");
  for (const char* form : {"int4_g64", "int4_g128", "Q4_0", "Q8_0"}) {
    const std::string layout = std::string("layout: ") + form + ", lossy: allow";
    const Finished on_cpu = compile("cpu", "device: cpu, " + layout);
    ASSERT_EQ(on_cpu.status, 0) << on_cpu.err;
    EXPECT_THAT(on_cpu.err, HasSubstr("rounded: blk.0.ffn_gate_exps.weight@cpu to " +
                                      std::string(form) + ": rms error "));
    EXPECT_THAT(on_cpu.err, HasSubstr("tensors in all; the plan has no --export-gguf"));
    ASSERT_EQ(compile("gpu", "device: cuda:0, " + layout).status, 0);
    const std::vector<float> cpu = logits("cpu"), gpu = logits("gpu");
    EXPECT_LT(difference(cpu, gpu), 2e-4) << form;  // panels and tiles
    EXPECT_GT(difference(cpu, before), 1e-3) << form;
    EXPECT_LT(difference(cpu, before), std::string(form) == "Q8_0" ? 0.5 : 8) << form;
  }
}

TEST_F(RoundedPlan, HasNoExportAndSaysWhy) {
  ASSERT_EQ(compile("rounded", "device: cpu, layout: Q8_0, lossy: allow").status, 0);
  const Finished run =
      run_program({ktx_run(), "inspect", plan("rounded"), "--export-gguf", dir_.path("copy.gguf")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("lossy"));
  const Finished shown = run_program({ktx_run(), "inspect", plan("rounded")});
  EXPECT_THAT(shown.out, HasSubstr("re-quantised (lossy)"));
}

TEST_F(RoundedPlan, IsRefusedUnlessTheRuleAllowsIt) {
  const Finished run = compile("denied", "device: cpu, layout: int4_g64");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("layout int4_g64 re-quantises weights, and the rule does not "
                                 "allow that [KTX-Q004]"));
}

TEST_F(RoundedPlan, AFormatThatIsNotRoundedToKeepsTheCodesWithAWarning) {
  const Finished run = compile("kept", "device: cpu, layout: Q6_K, lossy: allow");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("but to Q8_0, Q4_0, int4_g64, int4_g128"));
}

}  // namespace
}  // namespace ktx::testing
