// Caches of layers with a window, over whole models with windows of 64 tokens: what a long text
// takes, and that its tokens are those of a cache that keeps every position (one step of the whole
// text does) in long runs, in saved sessions, when a text is taken back, and beside other requests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <memory>

#include "lib/runtime/draft/lookup_drafter.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/host_gpu.h"
#include "tests/support/http_client.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::Outcome;
using runtime::Session;

struct Case {
  const char* model;
  const char* rules;
  bool gpu;  // one in host memory
};

class WindowCache : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::string gguf = test_model_gguf(GetParam().model);
    if (gguf.empty()) gguf = synthetic(GetParam().model);
    if (gguf.empty()) GTEST_SKIP() << "no model " << GetParam().model;
    // Streamed experts have another arithmetic in long passes than in short ones.
    const Finished run =
        run_program({ktx_compile(), "-q", gguf, "-o", dir_.path("m.ktxplan"),
                     "--prefer=stream-experts=no", source_dir() + "/rules/" + GetParam().rules,
                     "--target=" + source_dir() + "/targets/h200.yaml"});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  // A GGUF of a config in tests/models/synthetic, with the other models' window; "" without one.
  std::string synthetic(const std::string& name) const {
    const std::string folder = source_dir() + "/tests/models/synthetic/" + name;
    auto config = input::HfConfig::read(folder);
    if (!config.ok()) return "";
    config->set("sliding_window", int64_t{64});
    const auto writer = synth::synthesise(*config, {.types = "q8_0", .strong = true});
    if (!writer.ok() || !writer->write(dir_.path("m.gguf"))) return "";
    return dir_.path("m.gguf");
  }
  std::unique_ptr<Engine> open(int64_t chunk, int64_t batch = 1, int64_t ctx = 4096) const {
    EngineOptions options;
    options.threads = 2;
    options.ctx = ctx;
    options.chunk_tokens = chunk;
    options.max_batch = batch;
    options.sequence_logits = 5;
    if (GetParam().gpu) options.open_gpu = HostGpu::opener({}, &log_);
    auto engine = Engine::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? engine.take() : nullptr;
  }
  static Session session(Engine& engine) {
    return Session(engine, runtime::Sampler::create(varied_greedy(), engine.vocab_size()).take());
  }
  // The answer where every position is there: the text is computed in one step.
  std::vector<int32_t> expected(std::span<const int32_t> prompt, int count) const {
    const auto engine = open(4096);
    Session all = session(*engine);
    EXPECT_TRUE(all.set_prompt(prompt).ok());
    return next_tokens(all, count);
  }

  const TempDir dir_;
  mutable HostGpuLog log_;
};

TEST_P(WindowCache, AContextTakesTheMemoryOfItsWindows) {
  if (GetParam().gpu) GTEST_SKIP() << "the engine's figures are the host's";
  const auto engine = open(512);
  ASSERT_TRUE(engine);
  const plan::MemoryEstimate& memory = engine->memory();
  EXPECT_EQ(memory.kv_blocks.whole, 64u);
  // Window and slack, one for each end; the chunk; the end of another text.
  EXPECT_EQ(memory.kv_blocks.window, (2u + 2) + 8 + (1 + 1));
  EXPECT_EQ(memory.kv_bytes, 64 * (64 * memory.kv_token.whole + 14 * memory.kv_token.window));
  EXPECT_GT(memory.kv_token.window, 0u);
}

// A smaller gpt-oss, with a window in half of its layers: the memory that --estimate gives for a
// context is what the process takes from the system.
TEST(WindowMemory, AProcessTakesWhatTheEstimateSays) {
  if (sanitized()) GTEST_SKIP() << "sanitizers take memory of their own";
  const TempDir dir;
  const auto config = input::HfConfig::parse(R"({
    "model_type": "gpt_oss", "hidden_size": 256, "num_hidden_layers": 6, "head_dim": 64,
    "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 256,
    "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 512, "sliding_window": 128,
    "max_position_embeddings": 131072})",
                                             "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {.types = "q8_0"});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  ASSERT_EQ(
      run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", dir.path("m.ktxplan")}).status,
      0);
  const auto data_kib = [&](const char* ctx) {
    const ServerProcess server({dir.path("m.ktxplan"), "--ctx", ctx, "--max-batch", "1"});
    const std::string status = read_file(fmt::format("/proc/{}/status", server.pid()));
    const size_t at = status.find("VmData:");
    return at == status.npos ? 0 : std::strtoll(status.c_str() + at + 7, nullptr, 10);
  };
  const auto engine_kib = [&](int64_t ctx) {
    EngineOptions options;
    options.ctx = ctx;
    options.max_batch = 1;
    auto engine = Engine::open(dir.path("m.ktxplan"), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? static_cast<int64_t>((*engine)->memory().kv_bytes >> 10) : 0;
  };
  const int64_t said = engine_kib(131072) - engine_kib(4096);
  const int64_t position_kib = 2;  // keys and values of 8 heads of 64 in F16, in one layer
  EXPECT_EQ(said, 3 * position_kib * (131072 - 4096)) << "of the three layers without a window";
  EXPECT_LT(engine_kib(131072), 0.51 * 6 * position_kib * 131072) << "half of six full caches";
  const int64_t taken = data_kib("131072") - data_kib("4096");
  EXPECT_GT(taken, said);
  EXPECT_LT(taken, said + said / 25) << "and block tables";
}

TEST_P(WindowCache, LongTextsGoOnAlike) {
  const std::vector<int32_t> prompt = random_text(1500, 1);
  const std::vector<int32_t> answer = expected(prompt, 150);
  for (int64_t chunk : {7, 64, 512}) {
    const auto engine = open(chunk);
    Session s = session(*engine);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(next_tokens(s, 150), answer) << "chunks of " << chunk;
  }
}

TEST_P(WindowCache, ATextThatIsTakenBackGoesOnAlike) {
  const auto engine = open(64);
  Session s = session(*engine);
  std::vector<int32_t> prompt = random_text(700, 2);
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  const std::vector<int32_t> answer = next_tokens(s, 300);
  for (int64_t kept : {690, 650, 200, 5}) {
    std::vector<int32_t> other(prompt.begin(), prompt.begin() + kept);
    const std::vector<int32_t> more = random_text(40, 3 + static_cast<uint64_t>(kept));
    other.insert(other.end(), more.begin(), more.end());
    ASSERT_TRUE(s.set_prompt(other).ok());
    EXPECT_EQ(next_tokens(s, 20), expected(other, 20)) << kept;
  }
  // Again what was there before: from the prefix cache, or computed once more.
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  EXPECT_EQ(next_tokens(s, 300), answer);
}

TEST_P(WindowCache, AnAnswerCanBeMadeAgainWithoutItsPrompt) {
  const auto engine = open(512);
  Session s = session(*engine);
  const std::vector<int32_t> prompt = random_text(2000, 4);
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  const std::vector<int32_t> answer = next_tokens(s, 200);
  const int64_t before = s.stats().prompt_tokens;
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  EXPECT_EQ(next_tokens(s, 200), answer);
  EXPECT_LE(s.stats().prompt_tokens - before, 64) << "the tree still had the end of the prompt";
}

TEST_P(WindowCache, SavedSessionsGoOnAlike) {
  const std::vector<int32_t> prompt = random_text(900, 5);
  const std::vector<int32_t> answer = expected(prompt, 40);
  const std::string path = dir_.path("s.session");
  {
    const auto engine = open(64);
    Session s = session(*engine);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(next_tokens(s, 10), std::vector<int32_t>(answer.begin(), answer.begin() + 10));
    const Status saved = s.save(path, "note");
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(next_tokens(s, 5), std::vector<int32_t>(answer.begin() + 10, answer.begin() + 15));
  }
  const auto engine = open(512);
  Session s = session(*engine);
  const auto note = s.load(path);
  ASSERT_TRUE(note.ok()) << note.error().message;
  const int64_t computed = engine->stats().tokens;
  EXPECT_EQ(next_tokens(s, 30), std::vector<int32_t>(answer.begin() + 10, answer.end()));
  EXPECT_LE(engine->stats().tokens - computed, 32) << "the text was in the file";

  // A file that says it begins behind the window is refused, and nothing is lost.
  const int64_t behind = 896;
  std::FILE* const file = std::fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  std::fseek(file, 80, SEEK_SET);
  std::fwrite(&behind, sizeof behind, 1, file);
  std::fclose(file);
  EXPECT_FALSE(s.load(path).ok());
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  EXPECT_EQ(next_tokens(s, 5), std::vector<int32_t>(answer.begin(), answer.begin() + 5));
}

// More texts than the window pool has room for, with a common beginning, n-gram drafts, and one
// that is far longer than the others.
TEST_P(WindowCache, RequestsAnswerAsIfAlone) {
  const std::vector<int32_t> system = random_text(300, 6);
  std::vector<std::vector<int32_t>> prompts;
  for (uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(system);
    const std::vector<int32_t> rest =
        random_text(i == 2 ? 1800 : 50 + 90 * static_cast<int64_t>(i), 10 + i);
    prompts.back().insert(prompts.back().end(), rest.begin(), rest.end());
  }
  const auto engine = open(64, 3, 2400);
  runtime::SchedulerOptions options;
  options.drafter = runtime::make_lookup_drafter();
  options.speculation = {4, false};
  std::vector<std::vector<int32_t>> answers(12);
  {
    runtime::BatchScheduler scheduler(*engine, options);
    std::vector<std::future<void>> ends;
    for (size_t i = 0; i < answers.size(); ++i) {
      runtime::GenerationRequest request;
      request.prompt = prompts[i % prompts.size()];
      request.max_tokens = 60;
      request.sampling = varied_greedy();
      auto end = std::make_shared<std::promise<void>>();
      ends.push_back(end->get_future());
      request.on_token = [&answers, i](const runtime::TokenEvent& event) {
        answers[i].push_back(event.id);
        return true;
      };
      request.on_end = [end](const runtime::RequestEnd& why) {
        EXPECT_EQ(why.reason, runtime::EndReason::Length) << why.error;
        end->set_value();
      };
      ASSERT_NE(scheduler.submit(std::move(request)), 0);
    }
    for (auto& end : ends) end.get();
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t> alone = expected(prompts[i], 60);
    EXPECT_EQ(answers[i], alone) << i;
    EXPECT_EQ(answers[i + prompts.size()], alone) << i << ", the second time";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WindowCache,
                         ::testing::Values(Case{"gpt_oss", "cpu-only.yaml", false},
                                           Case{"gemma3", "cpu-only.yaml", false},
                                           Case{"gpt_oss", "moe-experts-on-cpu.yaml", true},
                                           Case{"gemma3", "all-gpu.yaml", true},
                                           Case{"gemma4_e", "cpu-only.yaml", false},
                                           Case{"gemma4_moe", "cpu-only.yaml", false},
                                           Case{"gemma4_e", "all-gpu.yaml", true},
                                           Case{"gemma4_moe", "moe-experts-on-cpu.yaml", true}),
                         [](const auto& info) {
                           return std::string(info.param.model) + (info.param.gpu ? "_gpu" : "");
                         });

}  // namespace
}  // namespace ktx::testing
