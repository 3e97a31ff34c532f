// Plans compiled for a described machine: a missing capability is reported before a weight is
// packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/input/gguf_writer.h"
#include "lib/plan/plan_reader.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CompileForTarget : public ::testing::Test {
 protected:
  Finished compile(const std::string& gguf, const std::string& target,
                   const std::string& rules = "") {
    std::vector<std::string> args = {ktx_compile(), gguf, "--target=" + target, "-o", plan()};
    if (!rules.empty()) args.push_back(source_dir() + "/rules/" + rules);
    return run_program(args);
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }
  static std::string profile(const std::string& name) {
    return source_dir() + "/targets/" + name + ".yaml";
  }
  // The test model with other types of weights.
  std::string synth(const std::string& model, const std::string& types) {
    const auto config = input::HfConfig::read(model_dir(model));
    synth::SynthOptions options;
    options.types = types;
    options.pool_bytes = size_t{1} << 18;
    const auto writer = synth::synthesise(*config, options);
    EXPECT_TRUE(writer.ok()) << writer.error().message;
    const std::string path = dir_.path(types + ".gguf");
    EXPECT_TRUE(writer->write(path, 2).ok());
    return path;
  }
  // The devices of all steps.
  std::set<std::string> devices() const {
    std::set<std::string> names;
    const auto file = plan::PlanFile::open(plan(), {});
    EXPECT_TRUE(file.ok()) << file.error().message;
    for (const plan::StepRecord& step : file->view().steps) {
      names.insert(std::string(file->view().string(step.device)));
    }
    return names;
  }
  TempDir dir_;
};

TEST_F(CompileForTarget, AGpuOfTooOldAGenerationIsRefusedWithTheAlternative) {
  const Finished run = compile(model_gguf("llama"), profile("v100"), "all-gpu.yaml");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cuda:0 (Tesla V100 32GB, compute capability 7.0) is too old: "
                                 "kernels exist for 7.5 and newer [KTX-D001]"));
  EXPECT_THAT(run.err, HasSubstr("help: place its modules on the CPU"));
}

TEST_F(CompileForTarget, WithoutRulesATooOldGpuIsLeftAloneAndToldOf) {
  const Finished run = compile(model_gguf("llama"), profile("v100"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("nothing is placed there by itself [KTX-D001]"));
  EXPECT_EQ(devices(), std::set<std::string>{"cpu"});
}

TEST_F(CompileForTarget, OlderGenerationsThatHaveKernelsAreTaken) {
  for (const char* target : {"t4", "a100", "rtx-3090", "rtx-4090", "h100", "rtx-5090"}) {
    const Finished run = compile(model_gguf("qwen3moe"), profile(target), "all-gpu.yaml");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.err, Not(HasSubstr("too old")));
  }
}

TEST_F(CompileForTarget, WhatDoesNotFitTheTargetIsToldWithNumbersAndNoPlanIsMade) {
  const std::string small = dir_.write("small.yaml", R"(name: small
gpus:
  - {name: S, compute_capability: 9.0, memory_gib: 0.1, bandwidth_gbps: 100, pcie_gbps: 12}
cpu: {isa: avx512, cores: 8, memory_gib: 64, bandwidth_gbps: 100, numa_nodes: 1}
)");
  const Finished run = compile(model_gguf("llama"), small, "all-gpu.yaml");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cuda:0 needs "));
  EXPECT_THAT(run.err, HasSubstr("and has 102.40 MiB"));
  EXPECT_THAT(run.err, HasSubstr("[KTX-M001]"));
  EXPECT_THAT(run.err, ContainsRegex("help: without .*rules/all-gpu.yaml it fits: cpu"));
  EXPECT_FALSE(plan::PlanFile::open(plan(), {}).ok());
}

// Formats of 1 to 3 bits have CPU kernels alone; F16 experts too.
TEST_F(CompileForTarget, WeightsThatNoGpuKernelReadsStayOnTheCpuWithTheReason) {
  for (const char* types : {"q2_k", "q3_k", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
                            "iq1_s", "iq1_m", "tq1_0", "tq2_0", "nvfp4", "q1_0", "q2_0", "f16"}) {
    SCOPED_TRACE(types);
    const bool experts_only = std::string(types) == "f16";
    const Finished run = compile(synth("qwen3moe", types), profile("h200"), "all-gpu.yaml");
    ASSERT_EQ(run.status, 0) << run.err;
    std::string upper = types;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    EXPECT_THAT(run.err, HasSubstr("no GPU kernel supports " + upper +
                                   " weights; it stays on the CPU "
                                   "[KTX-Q001]"));
    EXPECT_THAT(run.err, HasSubstr("help: write device: cpu, or use a file with Q4_0"));
    EXPECT_EQ(devices(), (std::set<std::string>{"cpu", "cuda:0"}));
    const auto file = plan::PlanFile::open(plan(), {});
    for (const plan::StepRecord& step : file->view().steps) {
      const auto op = static_cast<StepOp>(step.op);
      const bool on_cpu = file->view().string(step.device) == "cpu";
      if (op == StepOp::ExpertsDown) {
        EXPECT_TRUE(on_cpu);
      }
      if (op == StepOp::Attention && experts_only) {
        EXPECT_FALSE(on_cpu);
      }
    }
  }
}

}  // namespace
}  // namespace ktx::testing
