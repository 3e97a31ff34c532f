// Models that tests/models has no weights of, made of a config by the synthetic generator:
// compiled, run in exact precision on the CPU and on a GPU in host memory, and compared with the
// interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "lib/arch/build_graph.h"
#include "lib/input/gguf_config.h"
#include "lib/reference/interpreter.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/diag_text.h"
#include "tests/support/fused_gguf.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

// Heads, key and value heads and widths differ by layer.
constexpr const char* kUnequalLayers = R"({
  "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "head_dim": 32,
  "num_attention_heads": [4, 2, 6], "num_key_value_heads": [1, 2, 3],
  "intermediate_size": [96, 160, 64], "vocab_size": 320, "max_position_embeddings": 256})";

const std::vector<int32_t> kTokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15};

// Of each token: the best id, its logit, and the logit of id 0.
struct Logits {
  size_t best;
  float top, first;
};

// What a script beside the config makes of the same GGUF and kTokens.
std::vector<Logits> read_logits(const std::string& file) {
  std::vector<Logits> all;
  std::ifstream in(file);
  for (Logits one{}; in >> one.best >> one.top >> one.first;) all.push_back(one);
  return all;
}

struct SyntheticModel {
  const char* name;
  std::string config;
  std::vector<Logits> logits = {};  // computed apart from ktx
  bool strong = false;              // by which weights
};

// The model of a folder of tests/models.
SyntheticModel folder(const char* name, const char* below = "synthetic/", bool strong = true) {
  const std::string folder = source_dir() + "/tests/models/" + below + name;
  return {name, read_file(folder + "/config.json"), read_logits(folder + "/logits.txt"), strong};
}

class SyntheticModels : public ::testing::TestWithParam<SyntheticModel> {
 protected:
  void SetUp() override {
    auto config = input::HfConfig::parse(GetParam().config, "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = "f32", .strong = GetParam().strong});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write(dir_.path("m.gguf")));
    const auto gguf = input::GgufFile::open(dir_.path("m.gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    DiagSink diags;
    const auto merged = input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
    const auto graph = arch::build_graph(merged, &*gguf, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_TRUE(diags.all().empty()) << text_of(diags);
    auto model = reference::Interpreter::make(*graph, *gguf);
    ASSERT_TRUE(model.ok()) << model.error().message;
    for (const int32_t token : kTokens) wanted_.push_back(model->next(token));
  }

  // All tokens in one step, then one by one.
  void compare(const std::string& rules, runtime::EngineOptions options,
               const std::string& gguf = "m.gguf",
               const std::string& target = source_dir() + "/targets/h200.yaml") {
    const Finished run =
        run_program({ktx_compile(), "-q", dir_.path(gguf), "-o", dir_.path("m.ktxplan"),
                     source_dir() + "/rules/" + rules, "--target=" + target});
    ASSERT_EQ(run.status, 0) << run.err;
    options.precision = runtime::Precision::Exact;
    options.threads = 2;
    options.all_logits = true;
    auto engine = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    for (const size_t chunk : {kTokens.size(), size_t{1}}) {
      runtime::Sequence sequence = (*engine)->new_sequence();
      for (size_t at = 0; at < kTokens.size(); at += chunk) {
        const runtime::BatchItem item{&sequence, std::span(kTokens).subspan(at, chunk),
                                      runtime::Want::All};
        const auto done = (*engine)->forward({&item, 1});
        ASSERT_TRUE(done.ok()) << done.error().message;
        for (size_t t = 0; t < chunk; ++t) {
          compare_row((*engine)->logits(static_cast<int64_t>(t)), at + t);
        }
      }
    }
  }

  void compare_row(std::span<const float> found, size_t t) {
    const std::vector<float>& wanted = wanted_[t];
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(found[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << t << ": " << i;
    }
  }

  const TempDir dir_;
  std::vector<std::vector<float>> wanted_;  // by token
};

TEST_P(SyntheticModels, AreInterpretedAsOthersComputeThem) {
  if (GetParam().logits.empty()) GTEST_SKIP() << "no logits from elsewhere";
  ASSERT_EQ(GetParam().logits.size(), wanted_.size());
  for (size_t t = 0; t < wanted_.size(); ++t) {
    const Logits& logits = GetParam().logits[t];
    const auto best = std::ranges::max_element(wanted_[t]) - wanted_[t].begin();
    EXPECT_EQ(static_cast<size_t>(best), logits.best) << t;
    EXPECT_NEAR(wanted_[t][logits.best], logits.top, 1e-4 * (1 + std::abs(logits.top))) << t;
    EXPECT_NEAR(wanted_[t][0], logits.first, 1e-4 * (1 + std::abs(logits.top))) << t;
  }
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOnTheCpu) {
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    runtime::EngineOptions options;
    options.isa = *isa_from_name(isa);
    if (*options.isa <= detect_isa()) compare("cpu-only.yaml", options);
  }
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOnAGpu) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.open_gpu = HostGpu::opener({}, &log);
  compare("all-gpu.yaml", options);
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOverDevices) {
  const std::string two = dir_.write("two.yaml", R"(name: two
gpus:
  - {name: A, compute_capability: 9.0, memory_gib: 80, bandwidth_gbps: 3000, pcie_gbps: 50, count: 2}
cpu: {isa: avx512, cores: 8, memory_gib: 64, bandwidth_gbps: 100, numa_nodes: 1}
)");
  for (const char* rules : {"moe-experts-on-cpu.yaml", "spread-gpus.yaml"}) {
    HostGpuLog log;
    runtime::EngineOptions options;
    options.open_gpu = HostGpu::opener({}, &log);
    compare(rules, options, "m.gguf", two);
  }
}

TEST_P(SyntheticModels, GiveTheSameLogitsFromFusedTensors) {
  const auto gguf = input::GgufFile::open(dir_.path("m.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  if (!gguf->has("blk.0.attn_k.weight")) GTEST_SKIP() << "latent attention, or fused already";
  ASSERT_TRUE(fuse_tensors(*gguf, dir_.path("fused.gguf")));
  compare("cpu-only.yaml", {}, "fused.gguf");
  ASSERT_EQ(run_program({ktx_run(), "inspect", dir_.path("m.ktxplan"), "--export-gguf",
                         dir_.path("out.gguf")})
                .status,
            0);
  EXPECT_EQ(read_file(dir_.path("out.gguf")), read_file(dir_.path("fused.gguf")));
}

INSTANTIATE_TEST_SUITE_P(
    All, SyntheticModels,
    ::testing::Values(SyntheticModel{"UnequalLayers", kUnequalLayers}, folder("olmo2", "", false),
                      folder("glm4_moe_air"), folder("solar_open"), folder("glm4_moe_lite"),
                      folder("minimax_m2"), folder("seed_oss"), folder("ernie4_5_moe"),
                      folder("ernie4_5"), folder("dots1"), folder("hy_v3"), folder("hunyuan_moe"),
                      folder("hunyuan_dense"), folder("olmoe"), folder("qwen3_vl"),
                      folder("qwen3_vl_moe"), folder("ministral3"), folder("mistral4"),
                      folder("smollm3"), folder("granite"), folder("granitemoe"),
                      folder("granitemoeshared"), folder("olmo3"), folder("glm4"),
                      folder("bailing_moe_v2"), folder("exaone4"), folder("exaone_moe"),
                      folder("phi3"), folder("gemma"), folder("glm"), folder("gemma4"),
                      folder("gemma4_moe"), folder("gemma4_e")),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ktx::testing
