// Every kind of attention and of experts, from files with fused tensors: quantised, with parts of
// different types left apart, on the CPU in both precisions and on a GPU in host memory. The logits
// are those of the split file, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/input/gguf.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/fused_gguf.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

struct FusedModel {
  const char* name;
  const char* types;
  int fused_qkv;  // of the layers
  int fused_experts;
};

void PrintTo(const FusedModel& model, std::ostream* out) {
  *out << model.name;
}

class FusedTensors : public ::testing::TestWithParam<FusedModel> {
 protected:
  void SetUp() override {
    const std::string dir = test_model_dir(GetParam().name);
    if (dir.empty()) GTEST_SKIP() << "no " << GetParam().name << " here";
    const auto config = input::HfConfig::parse(read_file(dir + "/config.json"), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = GetParam().types, .strong = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write(dir_.path("split.gguf")));
    const auto gguf = input::GgufFile::open(dir_.path("split.gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    ASSERT_TRUE(fuse_tensors(*gguf, dir_.path("fused.gguf")));
  }

  int count(std::string_view part) {
    const auto gguf = input::GgufFile::open(dir_.path("fused.gguf"));
    if (!gguf.ok()) return -1;
    return static_cast<int>(std::ranges::count_if(gguf->tensors(), [&](const auto& tensor) {
      return tensor.name.find(part) != tensor.name.npos && tensor.name.ends_with(".weight");
    }));
  }

  // The logits of all tokens: twelve in one step, then one more.
  std::vector<float> logits(const std::string& name, const std::string& rules,
                            runtime::EngineOptions options) {
    const Finished run = run_program({ktx_compile(), "-q", dir_.path(name), "-o",
                                      dir_.path("m.ktxplan"), source_dir() + "/rules/" + rules,
                                      "--target=" + source_dir() + "/targets/h200.yaml"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    options.threads = 2;
    options.all_logits = true;
    auto engine = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.error().message;
      return {};
    }
    const std::vector<int32_t> tokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15, 90};
    runtime::Sequence sequence = (*engine)->new_sequence();
    std::vector<float> out;
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 12}, {12, 1}}) {
      const runtime::BatchItem item{&sequence, std::span(tokens).subspan(first, count),
                                    runtime::Want::All};
      const auto done = (*engine)->forward({&item, 1});
      EXPECT_TRUE(done.ok()) << done.error().message;
      for (size_t t = 0; t < count; ++t) {
        const auto row = (*engine)->logits(static_cast<int64_t>(t));
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  }

  void compare(const std::string& rules, const runtime::EngineOptions& options) {
    const std::vector<float> split = logits("split.gguf", rules, options);
    ASSERT_FALSE(split.empty());
    EXPECT_EQ(logits("fused.gguf", rules, options), split);
  }

  const TempDir dir_;
};

TEST_P(FusedTensors, AreInTheFile) {
  EXPECT_EQ(count(".attn_qkv."), GetParam().fused_qkv);
  EXPECT_EQ(count(".ffn_gate_up_exps."), GetParam().fused_experts);
}

TEST_P(FusedTensors, GiveTheLogitsOfTheSplitOnesOnTheCpu) {
  compare("cpu-only.yaml", {});
  runtime::EngineOptions exact;
  exact.precision = runtime::Precision::Exact;
  compare("cpu-only.yaml", exact);
}

TEST_P(FusedTensors, GiveTheLogitsOfTheSplitOnesOnAGpu) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.precision = runtime::Precision::Exact;
  options.open_gpu = HostGpu::opener({}, &log);
  compare("all-gpu.yaml", options);
}

// q4_k_m gives values more bits than queries and keys in some layers, with eight experts in all.
INSTANTIATE_TEST_SUITE_P(
    All, FusedTensors,
    ::testing::Values(FusedModel{"llama", "q4_k_m", 2, 0}, FusedModel{"llama", "q8_0", 3, 0},
                      FusedModel{"mixtral", "q4_k", 3, 3}, FusedModel{"qwen2", "q4_k_m", 2, 0},
                      FusedModel{"qwen2moe", "q4_k", 3, 3}, FusedModel{"qwen3moe", "q4_k_m", 0, 3},
                      FusedModel{"qwen3moe", "iq4_nl", 3, 3},
                      FusedModel{"deepseek2", "q4_k_m", 0, 2},
                      FusedModel{"deepseek2g", "q4_k_m", 0, 2},
                      FusedModel{"deepseek3", "q4_k_m", 0, 2}, FusedModel{"gemma3", "q4_k_m", 4, 0},
                      FusedModel{"gpt_oss", "q4_k_m", 2, 4}, FusedModel{"gpt_oss", "mxfp4", 4, 4},
                      FusedModel{"glm4_moe", "q4_k", 3, 2}, FusedModel{"minimax_m2", "q6_k", 3, 3},
                      FusedModel{"glm4_moe_lite", "q4_k_m", 0, 2}),
    [](const auto& info) { return std::string(info.param.name) + "_" + info.param.types; });

}  // namespace
}  // namespace ktx::testing
