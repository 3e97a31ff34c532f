// The key cache of indexers, over whole models with sparse attention, with attention over chosen
// blocks and over compressed entries: a text answers alike however it was cut, saved, taken back,
// shared or run beside others, and up to so many positions as are chosen as with attention over all
// of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>

#include "lib/input/hf_config.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/host_gpu.h"
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

constexpr const char* kPositions = "deepseek_v32";  // trained
constexpr const char* kBlocks = "minimax_m3";       // random weights
constexpr const char* kEntries = "deepseek_v4";     // random weights
constexpr const char* kPools = "glm5_next";  // random weights, with states (state_cache_test.cc)
constexpr const char* kHeadsPools = "qwen4_exp";  // likewise
constexpr int64_t kTopK = 32;                     // positions of a token

// A model with random weights, with other values in its config.
std::string changed_config(const std::string& model, const char* changes) {
  auto config = nlohmann::json::parse(
      read_file(source_dir() + "/tests/models/synthetic/" + model + "/config.json"));
  config.merge_patch(nlohmann::json::parse(changes));
  return config.dump();
}

class SparseAttentionCache : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == kPositions) {
      gguf_ = test_model_gguf(kPositions);
      if (gguf_.empty()) GTEST_SKIP() << "no model " << kPositions;
    } else {
      write_model("{}");
    }
    compile({source_dir() + "/rules/cpu-only.yaml"});
  }
  void write_model(const char* changes) {
    const auto config = input::HfConfig::parse(changed_config(GetParam(), changes), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    gguf_ = dir_.path("m.gguf");
    ASSERT_TRUE(writer->write(gguf_));
  }
  void compile(const std::vector<std::string>& more) const {
    std::vector<std::string> command = {ktx_compile(), "-q", gguf_, "-o", dir_.path("m.ktxplan")};
    command.insert(command.end(), more.begin(), more.end());
    const Finished run = run_program(command);
    ASSERT_EQ(run.status, 0) << run.err;
  }
  std::unique_ptr<Engine> open(int64_t chunk, EngineOptions options = {}) const {
    options.threads = 2;
    options.ctx = 1024;
    options.chunk_tokens = chunk;
    auto engine = Engine::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? engine.take() : nullptr;
  }
  static Session session(Engine& engine) {
    return Session(engine, runtime::Sampler::create(varied_greedy(), engine.vocab_size()).take());
  }
  // The answer to a text that is computed in one step.
  std::vector<int32_t> expected(std::span<const int32_t> prompt, int count) const {
    const auto engine = open(1024);
    Session all = session(*engine);
    EXPECT_TRUE(all.set_prompt(prompt).ok());
    return next_tokens(all, count);
  }

  const TempDir dir_;
  std::string gguf_;
};

class ChosenPositions : public SparseAttentionCache {};
class ChosenBlocks : public SparseAttentionCache {};
class ChosenEntries : public SparseAttentionCache {};
class RandomWeights : public SparseAttentionCache {};

TEST_P(ChosenPositions, EachIndexerHasASlotOfItsOwnKeys) {
  const auto engine = open(64);
  ASSERT_EQ(engine->plan().program->kv_slots.size(), 6u)
      << "keys of attention and of indexers, three layers";
  int64_t elements = 0;
  for (const program::KvSlot& slot : engine->plan().program->kv_slots) {
    EXPECT_EQ(slot.kv_heads, 1);
    EXPECT_EQ(slot.value_dim, 0);
    EXPECT_TRUE(slot.key_dim == 288 || slot.key_dim == 64) << slot.key_dim;
    elements += slot.key_dim;
  }
  EXPECT_EQ(engine->memory().kv_token.whole, static_cast<uint64_t>(2 * elements)) << "F16";
}

TEST_P(SparseAttentionCache, TextsGoOnAlikeHoweverTheyWereCut) {
  const std::vector<int32_t> prompt = random_text(700, 1);  // of several parts that threads score
  const std::vector<int32_t> answer = expected(prompt, 60);
  for (int64_t chunk : {1, 7, 64, 512}) {
    const auto engine = open(chunk);
    Session s = session(*engine);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(next_tokens(s, 60), answer) << "chunks of " << chunk;
  }
}

TEST_P(SparseAttentionCache, ATextThatIsTakenBackGoesOnAlike) {
  const auto engine = open(64);
  Session s = session(*engine);
  std::vector<int32_t> prompt = random_text(200, 2);
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  next_tokens(s, 40);
  for (int64_t kept : {199, 150, 31, 5}) {
    std::vector<int32_t> other(prompt.begin(), prompt.begin() + kept);
    const std::vector<int32_t> more = random_text(50, 3 + static_cast<uint64_t>(kept));
    other.insert(other.end(), more.begin(), more.end());
    const int64_t computed = engine->stats().tokens;
    ASSERT_TRUE(s.set_prompt(other).ok());
    EXPECT_EQ(engine->stats().tokens - computed, 50) << "what is new";
    EXPECT_EQ(next_tokens(s, 20), expected(other, 20)) << kept;
  }
}

TEST_P(SparseAttentionCache, ASessionSavedInThePromptGoesOnAlike) {
  const std::vector<int32_t> prompt = random_text(200, 6);
  const std::vector<int32_t> answer = expected(prompt, 20);
  const std::string path = dir_.path("s.session");
  {
    const auto engine = open(64);
    Session s = session(*engine);
    const auto stopped = s.set_prompt(prompt, [](int64_t done, int64_t) { return done < 128; });
    ASSERT_TRUE(stopped.ok());
    EXPECT_EQ(*stopped, Outcome::Stopped);
    ASSERT_TRUE(s.save(path, "").ok());
  }
  const auto engine = open(64);
  Session s = session(*engine);
  ASSERT_TRUE(s.load(path).ok());
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  EXPECT_EQ(engine->stats().tokens, 200 - 128);
  EXPECT_EQ(next_tokens(s, 20), answer);
}

// Texts with one beginning share its blocks, those of the indexers' keys among them.
TEST_P(SparseAttentionCache, RequestsWithOneBeginningAnswerAsIfAlone) {
  std::vector<std::vector<int32_t>> prompts, answers;
  for (uint64_t i = 0; i < 4; ++i) {
    prompts.push_back(random_text(192, 70));
    const std::vector<int32_t> more = random_text(20 + 15 * static_cast<int64_t>(i), 80 + i);
    prompts.back().insert(prompts.back().end(), more.begin(), more.end());
    answers.push_back(expected(prompts.back(), 30));
  }
  EngineOptions options;
  options.max_batch = 3;
  const auto engine = open(64, options);
  runtime::BatchScheduler scheduler(*engine, runtime::SchedulerOptions{});
  std::vector<std::promise<void>> done(prompts.size());
  std::vector<std::vector<int32_t>> found(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    runtime::GenerationRequest request;
    request.prompt = prompts[i];
    request.sampling = varied_greedy();
    request.max_tokens = 30;
    request.on_token = [&found, i](const runtime::TokenEvent& token) {
      found[i].push_back(token.id);
      return true;
    };
    request.on_end = [&done, i](const runtime::RequestEnd&) { done[i].set_value(); };
    ASSERT_NE(scheduler.submit(std::move(request)), 0);
    if (i == 0) done[0].get_future().wait();  // its blocks are there for the others
  }
  for (size_t i = 1; i < done.size(); ++i) done[i].get_future().wait();
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(found[i], answers[i]) << "request " << i;
  int64_t all = 0;
  for (const auto& prompt : prompts) all += static_cast<int64_t>(prompt.size()) + 30;
  EXPECT_LE(engine->stats().tokens, all - 3 * 192) << "the beginning was computed once";
}

// The logits of a text's tokens.
std::vector<std::vector<float>> logits_of(Engine& engine, std::span<const int32_t> text) {
  runtime::Sequence sequence = engine.new_sequence();
  const runtime::BatchItem item{&sequence, text, runtime::Want::All};
  const auto done = engine.forward({&item, 1});
  EXPECT_TRUE(done.ok()) << done.error().message;
  std::vector<std::vector<float>> rows;
  for (size_t t = 0; done.ok() && t < text.size(); ++t) {
    const auto row = engine.logits(static_cast<int64_t>(t));
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

TEST_P(ChosenPositions, UpToTopKPositionsTheBitsAreThoseOfDenseAttention) {
  EngineOptions options;
  options.all_logits = true;
  const std::vector<int32_t> text = random_text(120, 9);
  const auto sparse = logits_of(*open(512, options), text);
  // More positions than the text has.
  const std::string config = read_file(test_model_dir(kPositions) + "/config.json");
  std::string wide = config;
  const size_t at = wide.find("\"index_topk\": 32");
  ASSERT_NE(at, std::string::npos);
  wide.replace(at, 16, "\"index_topk\": 512");
  compile({"--hf-config", dir_.write("config.json", wide), "--trust=config",
           source_dir() + "/rules/cpu-only.yaml"});
  const auto dense = logits_of(*open(512, options), text);
  ASSERT_EQ(sparse.size(), dense.size());
  for (size_t t = 0; t < text.size(); ++t) {
    if (t < kTopK) {
      EXPECT_EQ(sparse[t], dense[t]) << t;
    } else if (t > 2 * kTopK) {
      EXPECT_NE(sparse[t], dense[t]) << t;
    }
  }
}

// On the CPU are routed experts alone: with F32 weights, and by a rule. The second half of the text
// comes from a saved session.
TEST_P(SparseAttentionCache, AGpuAnswersAsTheCpuDoes) {
  const std::vector<int32_t> prompt = random_text(150, 10);
  EngineOptions options;
  options.precision = runtime::Precision::Exact;
  const auto cpu = open(64, options);
  Session on_cpu = session(*cpu);
  ASSERT_TRUE(on_cpu.set_prompt(prompt).ok());
  const std::vector<int32_t> answer = next_tokens(on_cpu, 30);
  const std::string path = dir_.path("s.session");
  for (const char* rules : {"all-gpu.yaml", "moe-experts-on-cpu.yaml"}) {
    compile({source_dir() + "/rules/" + rules, "--target=" + source_dir() + "/targets/h200.yaml"});
    HostGpuLog log;
    options.open_gpu = HostGpu::opener({}, &log);
    for (int64_t chunk : {1, 7, 64}) {
      SCOPED_TRACE(fmt::format("{}, chunks of {}", rules, chunk));
      const auto engine = open(chunk, options);
      ASSERT_TRUE(engine);
      for (const plan::StepRecord& step : engine->plan().steps) {
        const StepOpInfo& op = info(static_cast<StepOp>(step.op));
        const bool of_experts = op.name.find("expert") != std::string_view::npos;
        const bool moves = op.op == StepOp::Quantize || op.op == StepOp::Transfer;
        const bool embeds = op.op == StepOp::Embed || op.op == StepOp::Scale;  // to all streams
        if (of_experts || moves || embeds) continue;
        EXPECT_EQ(engine->plan().string(step.device), "cuda:0") << op.name;
      }
      Session s = session(*engine);
      ASSERT_TRUE(s.set_prompt(prompt).ok());
      EXPECT_EQ(next_tokens(s, 15), std::vector(answer.begin(), answer.begin() + 15));
      ASSERT_TRUE(s.save(path, "").ok());
      const auto other = open(chunk, options);
      Session loaded = session(*other);
      ASSERT_TRUE(loaded.load(path).ok());
      EXPECT_EQ(next_tokens(loaded, 15), std::vector(answer.begin() + 15, answer.end()));
    }
    EXPECT_GT(log.launches, 0);
  }
}

// Two blocks of three positions: the last one and the best of those before it.
TEST_P(ChosenBlocks, UpToTopKBlocksTheBitsAreThoseOfAllBlocks) {
  EngineOptions options;
  options.all_logits = true;
  const std::vector<int32_t> text = random_text(160, 9);
  const auto sparse = logits_of(*open(512, options), text);
  write_model(R"({"index_topk_blocks": 400})");
  compile({source_dir() + "/rules/cpu-only.yaml"});
  const auto all = logits_of(*open(512, options), text);
  ASSERT_EQ(sparse.size(), all.size());
  for (size_t t = 0; t < text.size(); ++t) {
    if (t < 6) {
      EXPECT_EQ(sparse[t], all[t]) << t;
    } else if (t > 12) {
      EXPECT_NE(sparse[t], all[t]) << t;
    }
  }
}

// synthetic/<model>/long.txt is of make_logits.py: of each token the best id, its logit and that of
// id 0. Its text crosses the borders of windows, blocks and entries.
TEST_P(RandomWeights, ALongTextAnswersAsTransformersDoes) {
  const std::string file = source_dir() + "/tests/models/synthetic/" + GetParam() + "/long.txt";
  const std::string lines = read_file(file);
  std::vector<int32_t> text;
  for (int32_t i = 0; i < std::ranges::count(lines, '\n'); ++i) {
    text.push_back((i * 7 + i * i / 5) % 512);
  }
  ASSERT_GE(text.size(), 200u);
  EngineOptions options;
  options.all_logits = true;
  options.precision = runtime::Precision::Exact;
  for (const Isa isa : usable_isas()) {
    options.isa = isa;
    const auto found = logits_of(*open(512, options), text);
    std::ifstream in(file);
    size_t best = 0, t = 0;
    for (float top = 0, first = 0; in >> best >> top >> first; ++t) {
      ASSERT_LT(t, found.size());
      EXPECT_EQ(std::ranges::max_element(found[t]) - found[t].begin(), std::ptrdiff_t(best)) << t;
      EXPECT_NEAR(found[t][best], top, 1e-4 * (1 + std::abs(top))) << name(isa) << " " << t;
      EXPECT_NEAR(found[t][0], first, 1e-4 * (1 + std::abs(top))) << name(isa) << " " << t;
    }
    EXPECT_EQ(t, text.size());
  }
}

// Chunks as long as nothing, and as windows, entries and blocks of the cache; 300 positions have
// two entries of 128. In all types of cache.
TEST_P(SparseAttentionCache, LogitsHaveTheSameBitsHoweverTheTextWasCut) {
  const std::vector<int32_t> text = random_text(300, 12);
  for (const auto type : {plan::KvType::F32, plan::KvType::F16, plan::KvType::Q8_0}) {
    EngineOptions options;
    options.all_logits = true;
    options.kv_type = type;
    const auto whole = logits_of(*open(512, options), text);
    for (const int64_t chunk : {1, 7, 64}) {
      const auto engine = open(chunk, options);
      runtime::Sequence sequence = engine->new_sequence();
      for (size_t begin = 0; begin < text.size(); begin += static_cast<size_t>(chunk)) {
        const size_t count = std::min(static_cast<size_t>(chunk), text.size() - begin);
        const runtime::BatchItem item{&sequence, std::span(text).subspan(begin, count),
                                      runtime::Want::All};
        const auto done = engine->forward({&item, 1});
        ASSERT_TRUE(done.ok()) << done.error().message;
        for (size_t t = 0; t < count; ++t) {
          const auto row = engine->logits(static_cast<int64_t>(t));
          ASSERT_TRUE(std::ranges::equal(row, whole[begin + t]))
              << "token " << begin + t << ", chunks of " << chunk << ", " << name(type);
        }
      }
    }
  }
}

// Beside windows: a row of rows and scores, and one of entries, for attention and its indexer.
TEST_P(ChosenEntries, KeepAShareOfARowForEachPosition) {
  const auto engine = open(64);
  // By layer: none, four positions an entry, 128, four.
  struct Slot {
    int32_t layer, kv_heads, key_dim, value_dim, window;
  };
  constexpr Slot kWant[] = {
      {0, 1, 48, 0, 24},                                         // windows
      {1, 1, 48, 0, 24}, {1, 6, 16, 16, 8},   {1, 1, 12, 0, 0},  // entries of 4
      {1, 4, 16, 16, 8}, {1, 1, 8, 0, 0},                        // of the indexer
      {2, 1, 48, 0, 24}, {2, 3, 16, 16, 128}, {2, 1, 1, 0, 0},   // entries of 128
      {3, 1, 48, 0, 24}, {3, 6, 16, 16, 8},   {3, 1, 12, 0, 0}, {3, 4, 16, 16, 8}, {3, 1, 8, 0, 0}};
  const std::vector<program::KvSlot>& slots = engine->plan().program->kv_slots;
  ASSERT_EQ(slots.size(), std::size(kWant));
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(slots[i].layer, kWant[i].layer) << i;
    EXPECT_EQ(slots[i].kv_heads, kWant[i].kv_heads) << i;
    EXPECT_EQ(slots[i].key_dim, kWant[i].key_dim) << i;
    EXPECT_EQ(slots[i].value_dim, kWant[i].value_dim) << i;
    EXPECT_EQ(slots[i].window, kWant[i].window) << i;
  }
  EXPECT_EQ(engine->memory().kv_token.whole, 2u * (12 + 8 + 1 + 12 + 8)) << "F16";
}

// Five entries of 4 positions are chosen: up to 23 positions all of them are.
TEST_P(ChosenEntries, UpToTopKEntriesTheBitsAreThoseOfAllEntries) {
  EngineOptions options;
  options.all_logits = true;
  const std::vector<int32_t> text = random_text(160, 9);
  const auto some = logits_of(*open(512, options), text);
  write_model(R"({"index_topk": 400})");
  compile({source_dir() + "/rules/cpu-only.yaml"});
  const auto all = logits_of(*open(512, options), text);
  ASSERT_EQ(some.size(), all.size());
  for (size_t t = 0; t < text.size(); ++t) {
    if (t < 23) {
      EXPECT_EQ(some[t], all[t]) << t;
    } else if (t > 40) {
      EXPECT_NE(some[t], all[t]) << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SparseAttentionCache,
                         ::testing::Values(kPositions, kBlocks, kEntries),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, ChosenPositions, ::testing::Values(kPositions),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, ChosenBlocks, ::testing::Values(kBlocks),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, ChosenEntries, ::testing::Values(kEntries),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, RandomWeights,
                         ::testing::Values(kBlocks, kEntries, kPools, kHeadsPools),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ktx::testing
