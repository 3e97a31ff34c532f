// Synthetic models over texts that are longer than a chunk, a window, a block and a compressed
// group: the same bits however a text is cut into passes, and whatever texts are beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/input/hf_config.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

constexpr int32_t kIds = 300;  // that every vocabulary has
constexpr int64_t kTokens = 540;

std::vector<int32_t> text(int32_t step) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kTokens; ++i) tokens.push_back((i * step + i * i / 7) % kIds);
  return tokens;
}

class LongTexts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string file =
        source_dir() + "/tests/models/synthetic/" + GetParam() + "/config.json";
    auto config = input::HfConfig::parse(read_file(file), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write(dir_.path("m.gguf")));
    const Finished run =
        run_program({ktx_compile(), "-q", dir_.path("m.gguf"), "-o", dir_.path("m.ktxplan"),
                     source_dir() + "/rules/cpu-only.yaml"});
    ASSERT_EQ(run.status, 0) << run.err;
  }

  void open(Isa isa) {
    runtime::EngineOptions options;
    options.isa = isa;
    options.precision = runtime::Precision::Exact;
    options.threads = 2;
    options.all_logits = true;
    options.max_batch = 3;
    options.chunk_tokens = kTokens;
    auto engine = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(*engine);
  }

  // The logits behind the text, which is computed in passes of `chunk` tokens.
  std::vector<float> last(const std::vector<int32_t>& tokens, size_t chunk) {
    runtime::Sequence sequence = engine_->new_sequence();
    std::vector<float> logits;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const size_t count = std::min(chunk, tokens.size() - at);
      const runtime::BatchItem item{&sequence, std::span(tokens).subspan(at, count),
                                    runtime::Want::Last};
      EXPECT_TRUE(engine_->forward({&item, 1}).ok());
      const auto row = engine_->logits(0);
      logits.assign(row.begin(), row.end());
    }
    return logits;
  }

  const TempDir dir_;
  std::unique_ptr<runtime::Engine> engine_;
};

TEST_P(LongTexts, GiveTheSameBitsInChunksOfAnySize) {
  for (const Isa isa : usable_isas()) {
    ASSERT_NO_FATAL_FAILURE(open(isa));
    const std::vector<float> whole = last(text(5), kTokens);
    ASSERT_FALSE(whole.empty());
    for (size_t chunk : {1, 7, 64, 512}) {
      EXPECT_EQ(last(text(5), chunk), whole) << name(isa) << ", chunks of " << chunk;
    }
  }
}

TEST_P(LongTexts, DoNotDependOnTextsBeside) {
  ASSERT_NO_FATAL_FAILURE(open(usable_isas().back()));
  const std::vector<std::vector<int32_t>> texts = {text(5), text(11), text(3)};
  std::vector<runtime::Sequence> sequences;
  for (size_t i = 0; i < texts.size(); ++i) sequences.push_back(engine_->new_sequence());
  for (size_t at = 0; at < kTokens; at += 30) {
    std::vector<runtime::BatchItem> items;
    for (size_t i = 0; i < texts.size(); ++i) {
      items.push_back({&sequences[i], std::span(texts[i]).subspan(at, 30), runtime::Want::Last});
    }
    const auto ran = engine_->forward(items);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
  }
  std::vector<std::vector<float>> beside;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto row = engine_->logits(static_cast<int64_t>(i));
    beside.emplace_back(row.begin(), row.end());
  }
  sequences.clear();  // a model with few positions has no room for a fourth text
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(beside[i], last(texts[i], kTokens)) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, LongTexts,
                         ::testing::Values("granitehybrid", "falcon_h1", "nemotron_h",
                                           "nemotron_h_moe", "nemotron_h_latent", "mamba2",
                                           "lfm2_moe", "jamba", "mamba", "falcon_mamba",
                                           "kimi_linear", "kimi_k3", "bailing_hybrid",
                                           "deepseek_v4", "minimax_m3", "gemma3n", "phimoe",
                                           "glm5_next", "gpt2", "gpt_neox", "mpt", "apertus",
                                           "smallthinker", "qwen4_exp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ktx::testing
