// Encoders, and decoders that score texts, made of a config by the synthetic generator: compiled,
// run in exact precision on the CPU and on a GPU in host memory, and compared with what
// transformers makes of the same weights (tests/models/synthetic/make_vectors.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

const std::vector<int32_t> kTokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15};

std::string folder_of(const std::string& name) {
  return source_dir() + "/tests/models/synthetic/" + name;
}

// A line a token.
std::vector<std::vector<float>> read_vectors(const std::string& file) {
  std::vector<std::vector<float>> all;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    std::vector<float>& row = all.emplace_back();
    for (float x = 0; numbers >> x;) row.push_back(x);
  }
  return all;
}

void write_model(const std::string& name, const std::string& path) {
  const auto config =
      input::HfConfig::parse(read_file(folder_of(name) + "/config.json"), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(path));
}

class EncoderModels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    write_model(GetParam(), dir_.path("m.gguf"));
    wanted_ = read_vectors(folder_of(GetParam()) + "/vectors.txt");
    ASSERT_EQ(wanted_.size(), kTokens.size());
  }

  std::unique_ptr<runtime::Engine> open(const char* rules, runtime::EngineOptions options) {
    const Finished run = run_program({ktx_compile(), "-q", dir_.path("m.gguf"), "-o",
                                      dir_.path("m.ktxplan"), source_dir() + "/rules/" + rules,
                                      "--target=" + source_dir() + "/targets/h200.yaml"});
    EXPECT_EQ(run.status, 0) << run.err;
    options.precision = runtime::Precision::Exact;
    options.threads = 2;
    auto engine = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine ? engine.take() : nullptr;
  }

  // The text twice in a pass, between them another one.
  void compare(const char* rules, runtime::EngineOptions options) {
    options.max_batch = 3;
    const auto engine = open(rules, options);
    ASSERT_NE(engine, nullptr);
    std::vector<runtime::Sequence> sequences;
    for (int i = 0; i < 3; ++i) sequences.push_back(engine->new_sequence());
    const std::vector<int32_t> other = {9, 8, 7, 6, 5};
    const runtime::BatchItem items[] = {
        {&sequences[0], kTokens, runtime::Want::All},
        {&sequences[1], other, runtime::Want::All},
        {&sequences[2], kTokens, runtime::Want::All},
    };
    const auto done = engine->forward(items);
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ(*done, runtime::Forward::Done);
    const auto count = static_cast<int64_t>(kTokens.size());
    for (const int64_t first : {int64_t{0}, count + std::ssize(other)}) {
      for (int64_t t = 0; t < count; ++t) {
        const auto found = engine->logits(first + t);
        const auto& wanted = wanted_[static_cast<size_t>(t)];
        ASSERT_EQ(found.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_NEAR(found[i], wanted[i], 2e-4 * (1 + std::abs(wanted[i]))) << t << ": " << i;
        }
      }
    }
  }

  const TempDir dir_;
  std::vector<std::vector<float>> wanted_;
};

TEST_P(EncoderModels, GiveWhatTransformersGivesOnTheCpu) {
  for (const Isa isa : usable_isas()) {
    runtime::EngineOptions options;
    options.isa = isa;
    compare("cpu-only.yaml", options);
  }
}

TEST_P(EncoderModels, GiveWhatTransformersGivesOnAGpu) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.open_gpu = HostGpu::opener({}, &log);
  compare("all-gpu.yaml", options);
}

TEST_P(EncoderModels, SayWhatTheyAreForWhereTextIsToBeGenerated) {
  (void)open("cpu-only.yaml", {});
  const std::string plan = dir_.path("m.ktxplan");
  for (const std::vector<std::string>& call :
       {std::vector<std::string>{ktx_run(), "generate", plan, "--prompt", "hello"},
        {ktx_run(), "chat", plan}}) {
    const Finished run = run_program(call);
    EXPECT_NE(run.status, 0);
    EXPECT_THAT(run.err, ::testing::AnyOf(::testing::HasSubstr("POST to /v1/embeddings"),
                                          ::testing::HasSubstr("POST to /rerank")));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncoderModels,
                         ::testing::Values("bert", "bert_scores", "nomic_bert", "jina_v2",
                                           "jina_v3", "embedding_gemma", "modern_bert", "eurobert",
                                           "llama_embed"),
                         [](const auto& info) { return std::string(info.param); });

// Through the scheduler: texts as a whole, pooled, and refused where they do not fit.
class EncodedTexts : public ::testing::Test {
 protected:
  void start(const char* name, int64_t ctx, int64_t batch) {
    write_model(name, dir_.path("m.gguf"));
    const std::string plan = dir_.path("m.ktxplan");
    ASSERT_EQ(run_program({ktx_compile(), "-q", dir_.path("m.gguf"), "-o", plan}).status, 0);
    runtime::EngineOptions options;
    options.precision = runtime::Precision::Exact;
    options.threads = 1;
    options.ctx = ctx;
    options.max_batch = batch;
    options.chunk_tokens = 8;  // less than a text
    auto engine = runtime::Engine::open(plan, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine.take();
    scheduler_ = std::make_unique<runtime::BatchScheduler>(*engine_, runtime::SchedulerOptions{});
  }

  std::vector<float> embed(std::vector<int32_t> text, runtime::Pooling pooling,
                           std::string* refusal = nullptr) {
    auto done = std::make_shared<std::promise<std::vector<float>>>();
    auto vector = std::make_shared<std::vector<float>>();
    runtime::GenerationRequest request;
    request.prompt = std::move(text);
    request.embed = pooling;
    request.on_embedding = [vector](std::vector<float> v) { *vector = std::move(v); };
    request.on_end = [done, vector](const runtime::RequestEnd& end) {
      EXPECT_EQ(end.reason, runtime::EndReason::Stop) << end.error;
      done->set_value(*vector);
    };
    runtime::BatchScheduler::Refused refused;
    if (scheduler_->submit(std::move(request), &refused) == 0) {
      if (refusal != nullptr) *refusal = refused.message;
      return {};
    }
    return done->get_future().get();
  }

  const TempDir dir_;
  std::unique_ptr<runtime::Engine> engine_;
  std::unique_ptr<runtime::BatchScheduler> scheduler_;
};

TEST_F(EncodedTexts, ArePooledFromTheirFirstTokenTheirLastOrAll) {
  start("bert", 64, 2);
  const auto wanted = read_vectors(folder_of("bert") + "/vectors.txt");
  ASSERT_EQ(wanted.size(), kTokens.size());
  const auto first = embed(kTokens, runtime::Pooling::First);
  const auto last = embed(kTokens, runtime::Pooling::Last);
  const auto mean = embed(kTokens, runtime::Pooling::Mean);
  const auto all = embed(kTokens, runtime::Pooling::None);
  ASSERT_EQ(all.size(), wanted.size() * wanted[0].size());
  for (size_t i = 0; i < wanted[0].size(); ++i) {
    double sum = 0;
    for (const auto& row : wanted) sum += row[i];
    EXPECT_NEAR(first[i], wanted.front()[i], 1e-3) << i;
    EXPECT_NEAR(last[i], wanted.back()[i], 1e-3) << i;
    EXPECT_NEAR(mean[i], sum / static_cast<double>(wanted.size()), 1e-3) << i;
  }
}

TEST_F(EncodedTexts, FillTheContextAndAreRefusedBeyondIt) {
  start("bert", 16, 2);
  std::vector<int32_t> text(16, 5);
  EXPECT_EQ(embed(text, runtime::Pooling::Mean).size(), 96U);
  text.push_back(5);
  std::string refusal;
  embed(text, runtime::Pooling::Mean, &refusal);
  EXPECT_THAT(refusal, ::testing::HasSubstr("the text has 17 tokens, at most 16 fit"));
}

TEST_F(EncodedTexts, AreScoredByTheirFirstToken) {
  start("bert_scores", 64, 2);
  const auto wanted = read_vectors(folder_of("bert_scores") + "/vectors.txt");
  ASSERT_FALSE(wanted.empty());
  const auto scores = embed(kTokens, runtime::Pooling::Scores);
  ASSERT_EQ(scores.size(), 1U);
  EXPECT_NEAR(scores[0], wanted[0][0], 1e-3);
  std::string refusal;
  embed(kTokens, runtime::Pooling::Mean, &refusal);
  EXPECT_THAT(refusal, ::testing::HasSubstr("POST to /rerank"));
}

}  // namespace
}  // namespace ktx::testing
