// Models that no file of tests/models has, made of a config by the synthetic generator: compiled,
// run on the CPU in exact precision, and compared with the interpreter.
#include <gtest/gtest.h>

#include <cmath>

#include "lib/arch/build_graph.h"
#include "lib/input/gguf_config.h"
#include "lib/reference/interpreter.h"
#include "lib/runtime/engine.h"
#include "tests/support/diag_text.h"
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

struct SyntheticModel {
  const char* name;
  const char* config;
};

class SyntheticModels : public ::testing::TestWithParam<SyntheticModel> {};

TEST_P(SyntheticModels, AreComputedAsTheInterpreterDoes) {
  const TempDir dir;
  const auto config = input::HfConfig::parse(GetParam().config, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {.types = "f32"});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  const Finished run = run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o",
                                    dir.path("m.ktxplan"), source_dir() + "/rules/cpu-only.yaml"});
  ASSERT_EQ(run.status, 0) << run.err;

  const auto gguf = input::GgufFile::open(dir.path("m.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  DiagSink diags;
  const auto merged = input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
  const auto graph = arch::build_graph(merged, &*gguf, diags);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(text_of(diags), "");
  auto model = reference::Interpreter::make(*graph, *gguf);
  ASSERT_TRUE(model.ok()) << model.error().message;

  runtime::EngineOptions options;
  options.precision = runtime::Precision::Exact;
  options.threads = 2;
  options.all_logits = true;
  auto engine = runtime::Engine::open(dir.path("m.ktxplan"), options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const std::vector<int32_t> tokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15};
  runtime::Sequence sequence = (*engine)->new_sequence();
  const runtime::BatchItem item{&sequence, tokens, runtime::Want::All};
  const auto done = (*engine)->forward({&item, 1});
  ASSERT_TRUE(done.ok()) << done.error().message;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<float> wanted = model->next(tokens[t]);
    const auto found = (*engine)->logits(static_cast<int64_t>(t));
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(found[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << t << ": " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SyntheticModels,
                         ::testing::Values(SyntheticModel{"UnequalLayers", kUnequalLayers}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ktx::testing
