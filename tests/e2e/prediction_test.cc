// Drafters within plans. Layers for multi-token prediction give the logits that their formulas give
// (the interpreter), read the model's hidden states on the CPU and beside GPUs in host memory, and
// change no answer: in sessions, full batches, after preemptions and under grammars. Draft heads
// (whose logits are draft_head_test.cc's) and small models within the plan of a large one,
// likewise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "lib/arch/build_graph.h"
#include "lib/input/gguf_config.h"
#include "lib/input/model_source.h"
#include "lib/reference/interpreter.h"
#include "lib/runtime/draft/prediction_drafter.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/diag_text.h"
#include "tests/support/draft_head_gguf.h"
#include "tests/support/draft_plans.h"
#include "tests/support/host_gpu.h"
#include "tests/support/http_client.h"
#include "tests/support/prediction_gguf.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using runtime::Engine;
using runtime::EngineOptions;

// --- the layer's own logits --------------------------------------------------------------------

const std::vector<int32_t> kTokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15, 2, 99};

// Configs of tests/models or of the shared ones.
class PredictionLayers : public ::testing::TestWithParam<const char*> {};

TEST_P(PredictionLayers, GiveTheInterpretersLogits) {
  const std::string path = GetParam();
  const std::string bundled = source_dir() + "/tests/models/" + path + "/config.json";
  const std::string shared = shared_dir() + "/models/" + path + "/config.json";
  const std::string file = std::filesystem::exists(bundled) ? bundled : shared;
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no config " << path;
  const TempDir dir;
  auto config = input::HfConfig::parse(read_file(file), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer =
      synth::synthesise(*config, {.types = "f32", .seed = 3, .strong = true, .mtp = true});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  DiagSink diags;
  input::ModelInputs inputs;
  inputs.gguf_path = dir.path("m.gguf");
  inputs.accept = arch::accept_architecture;
  const auto source = input::open_model(inputs, diags);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto model_graph = arch::build_graph(*source, diags);
  ASSERT_TRUE(model_graph.ok()) << model_graph.error().message;
  const auto layer_graph = arch::build_prediction_graph(*source, diags);
  ASSERT_TRUE(layer_graph.ok()) << layer_graph.error().message;
  EXPECT_EQ(diags.errors(), 0) << text_of(diags);
  EXPECT_EQ(layer_graph->facts.layers, model_graph->facts.layers + 1);
  auto model = reference::Interpreter::make(*model_graph, source->gguf);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto layer = reference::Interpreter::make(*layer_graph, source->gguf);
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  const auto width = static_cast<size_t>(model_graph->facts.hidden);
  std::vector<std::vector<float>> hidden = {std::vector<float>(width, 0.0f)}, wanted;
  for (const int32_t token : kTokens) {
    wanted.push_back(layer->next(token, hidden.back()));
    model->next(token);
    hidden.push_back(model->hidden());
  }

  HostGpuLog log;
  for (const char* rules : {"cpu-only.yaml", "all-gpu.yaml"}) {
    SCOPED_TRACE(rules);
    std::vector<std::string> more = placed(rules);
    more.insert(more.end(), {"--draft", "mtp"});
    compile_with(dir.path("m.gguf"), dir.path("m.ktxplan"), more);
    if (HasFatalFailure()) return;
    EngineOptions options;
    options.precision = runtime::Precision::Exact;
    options.open_gpu = HostGpu::opener({}, &log);
    const auto engine = open_engine(dir.path("m.ktxplan"), options);
    options.drafter = true;
    options.all_logits = true;
    const auto drafter = open_engine(dir.path("m.ktxplan"), options);
    ASSERT_TRUE(engine && drafter);
    EXPECT_TRUE(drafter->plan().facts.reads_hidden());
    for (const size_t chunk : {kTokens.size(), size_t{1}, size_t{3}}) {
      runtime::Sequence text = engine->new_sequence(), drafts = drafter->new_sequence();
      std::vector<float> rows(width, 0.0f);  // of the token before, then of the pass
      for (size_t at = 0; at < kTokens.size(); at += chunk) {
        const auto tokens = std::span(kTokens).subspan(at, std::min(chunk, kTokens.size() - at));
        const runtime::BatchItem item{&text, tokens, runtime::Want::None};
        const auto done = engine->forward({&item, 1});
        ASSERT_TRUE(done.ok()) << done.error().message;
        rows.erase(rows.begin(), rows.end() - static_cast<ptrdiff_t>(width));
        rows.resize(width * (tokens.size() + 1));
        const auto read = engine->hidden_of_tokens(0, std::ssize(tokens));
        ASSERT_TRUE(read.ok()) << read.error().message;
        std::ranges::copy(*read, rows.begin() + static_cast<ptrdiff_t>(width));
        runtime::BatchItem draft{&drafts, tokens, runtime::Want::All};
        draft.hidden = std::span(rows).first(width * tokens.size());
        const auto drafted = drafter->forward({&draft, 1});
        ASSERT_TRUE(drafted.ok()) << drafted.error().message;
        for (size_t t = 0; t < tokens.size(); ++t) {
          for (size_t i = 0; i < width; ++i) {
            const float right = hidden[at + t + 1][i];
            ASSERT_NEAR(rows[(t + 1) * width + i], right, 1e-4 * (1 + std::abs(right))) << at + t;
          }
          const auto logits = drafter->logits(static_cast<int64_t>(t));
          for (size_t i = 0; i < logits.size(); ++i) {
            const float right = wanted[at + t][i];
            ASSERT_NEAR(logits[i], right, 2e-4 * (1 + std::abs(right))) << at + t << ": " << i;
          }
        }
      }
    }
    const runtime::BatchItem alone{nullptr, kTokens, runtime::Want::None};
    runtime::Sequence sequence = drafter->new_sequence();
    runtime::BatchItem without = alone;
    without.sequence = &sequence;
    EXPECT_FALSE(drafter->forward({&without, 1}).ok()) << "no hidden states came along";
  }
}

INSTANTIATE_TEST_SUITE_P(All, PredictionLayers,
                         ::testing::Values("deepseek3", "synthetic/glm4_moe_air",
                                           "synthetic/glm4_moe_lite", "synthetic/deepseek_v32",
                                           "synthetic/glm_moe_dsa", "qwen3_next", "qwen35moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

// --- whole models ------------------------------------------------------------------------------

struct Place {
  const char* model;
  const char* rules;
  bool gpu;
  enum Drafter { Layer, LayerWithHead, Head, HeadOfFewer } drafter;

  bool is_head() const { return drafter == Head || drafter == HeadOfFewer; }
};

// Trained models with a layer behind their own that was not, or a head.
class Predictions : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    const std::string path = test_model_gguf(GetParam().model);
    if (path.empty()) GTEST_SKIP() << "no model " << GetParam().model;
    const auto gguf = input::GgufFile::open(path);
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const Place place = GetParam();
    const std::string added_path = dir_.path("m.gguf");
    const Status added =
        place.is_head()
            ? write_draft_head(*gguf, added_path, {.every = place.drafter == Place::Head ? 0 : 5})
            : add_prediction_layer(*gguf, added_path, place.drafter == Place::LayerWithHead);
    ASSERT_TRUE(added.ok()) << added.error().message;
    // Rules are not for heads: without a GPU to place on, they are on the CPU.
    std::vector<std::string> more = {source_dir() + "/rules/" + place.rules};
    if (place.gpu) more = placed(place.rules);
    more.insert(more.end(), {"--draft", place.is_head() ? added_path : "mtp"});
    compile_with(place.is_head() ? path : added_path, dir_.path("m.ktxplan"), more);
  }
  std::unique_ptr<Engine> open(int64_t batch, bool drafter = false, int64_t kv_budget = 0) {
    EngineOptions options;
    options.ctx = 768;
    options.max_batch = batch;
    options.sequence_logits = 5;
    options.rollback_tokens = 4;
    options.drafter = drafter;
    if (kv_budget > 0) options.kv_budget_bytes = kv_budget;
    if (GetParam().gpu) options.open_gpu = HostGpu::opener({}, &log_);
    return open_engine(dir_.path("m.ktxplan"), options);
  }
  std::shared_ptr<runtime::Drafter> drafter(const Engine& model, int64_t batch) {
    auto made = runtime::make_prediction_drafter(open(batch, true), model);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.take();
  }
  static runtime::SamplingOptions sampling(uint64_t seed) {
    runtime::SamplingOptions options = varied_greedy();
    options.seed = seed;
    if (seed % 2 == 1) options.temperature = 0.8f;
    if (seed % 4 == 3) options.frequency_penalty = 0;  // a GPU sends the best ones alone
    return options;
  }
  static runtime::Sampler sampler(const Engine& engine, uint64_t seed) {
    return runtime::Sampler::create(sampling(seed), engine.vocab_size()).take();
  }
  // Without draft tokens, one text at a time.
  std::vector<std::vector<int32_t>> alone(Engine& engine,
                                          const std::vector<std::vector<int32_t>>& prompts,
                                          int count) {
    std::vector<std::vector<int32_t>> answers;
    for (size_t i = 0; i < prompts.size(); ++i) {
      runtime::Session session(engine, sampler(engine, i));
      session.keep_logits(false);
      EXPECT_TRUE(session.set_prompt(prompts[i]).ok());
      answers.push_back(next_tokens(session, count));
    }
    return answers;
  }
  // All at once.
  std::vector<std::vector<int32_t>> together(Engine& engine,
                                             const std::vector<std::vector<int32_t>>& prompts,
                                             int count, std::shared_ptr<runtime::Drafter> drafter,
                                             bool adaptive, runtime::SchedulerStats& stats) {
    runtime::SchedulerOptions options;
    options.drafter = std::move(drafter);
    options.speculation = {4, adaptive};
    runtime::BatchScheduler scheduler(engine, options);
    std::vector<std::vector<int32_t>> answers(prompts.size());
    std::vector<std::future<void>> ends;
    for (size_t i = 0; i < answers.size(); ++i) {
      runtime::GenerationRequest request;
      request.prompt = prompts[i];
      request.max_tokens = count;
      request.sampling = sampling(i);
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
      EXPECT_NE(scheduler.submit(std::move(request)), 0u);
    }
    for (std::future<void>& end : ends) end.wait();
    scheduler.stop();
    stats = scheduler.stats();
    return answers;
  }
  static std::vector<std::vector<int32_t>> some_prompts(int count, int64_t step) {
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < count; ++i) {
      prompts.push_back(random_text(9 + step * i, static_cast<uint64_t>(i)));
    }
    return prompts;
  }

  const TempDir dir_;
  HostGpuLog log_;
};

TEST_P(Predictions, SessionsSayTheSame) {
  const auto engine = open(3);
  ASSERT_TRUE(engine);
  const auto predictor = drafter(*engine, 3);
  // The last one is longer than what is held for a drafter, and computed in two chunks.
  std::vector<std::vector<int32_t>> prompts = some_prompts(4, 40);
  prompts.push_back(random_text(600, 9));
  const auto answers = alone(*engine, prompts, 30);
  runtime::Speculation speculation(*predictor, {4, false});
  int64_t drafted = 0, accepted = 0;
  for (int round = 0; round < 2; ++round) {  // then with what the caches keep
    for (size_t i = 0; i < prompts.size(); ++i) {
      runtime::Session session(*engine, sampler(*engine, i));
      session.keep_logits(false);
      session.speculate(&speculation);
      ASSERT_TRUE(session.set_prompt(prompts[i]).ok());
      EXPECT_EQ(next_tokens(session, 30), answers[i]) << "session " << i;
      EXPECT_GT(session.stats().drafted_tokens, 0);
      drafted += session.stats().drafted_tokens;
      accepted += session.stats().accepted_tokens;
    }
  }
  EXPECT_EQ(speculation.failure(), "");
  EXPECT_GT(accepted, 0) << "of " << drafted;
  EXPECT_LT(accepted, drafted);
  RecordProperty("accepted", static_cast<int>(accepted));
  RecordProperty("drafted", static_cast<int>(drafted));
}

// Cut, continued, changed, saved and loaded between draft tokens.
TEST_P(Predictions, SessionsGoOnFromAnywhere) {
  const auto engine = open(2), plain = open(2);
  ASSERT_TRUE(engine && plain);
  const auto predictor = drafter(*engine, 2);
  runtime::Speculation speculation(*predictor, {4, false});
  for (uint64_t seed = 0; seed < 3; ++seed) {
    runtime::Session drafts(*engine, sampler(*engine, seed)),
        session(*plain, sampler(*plain, seed));
    drafts.speculate(&speculation);
    const auto both = [&](const auto& what) {
      const auto one = what(drafts);
      EXPECT_EQ(one, what(session)) << "seed " << seed;
    };
    const std::vector<int32_t> prompt = random_text(90, seed), more = random_text(3, seed + 50);
    std::vector<int32_t> edited(prompt.begin(), prompt.begin() + 70);
    edited.insert(edited.end(), more.begin(), more.end());
    both([&](runtime::Session& s) { return s.set_prompt(prompt).take(); });
    for (int count = 1; count < 5; ++count) {
      both([&](runtime::Session& s) { return next_tokens(s, count); });
      both([&](runtime::Session& s) { return s.prefill(more).take(); });
    }
    both([&](runtime::Session& s) { return next_tokens(s, 9); });
    both([&](runtime::Session& s) { return s.set_prompt(edited).take(); });
    both([&](runtime::Session& s) { return next_tokens(s, 9); });
    both([&](runtime::Session& s) {
      EXPECT_TRUE(s.save(dir_.path("s")).ok());
      EXPECT_TRUE(s.load(dir_.path("s")).ok());
      return next_tokens(s, 20);
    });
  }
  EXPECT_EQ(speculation.failure(), "");
}

TEST_P(Predictions, FullBatchesSayTheSame) {
  const auto engine = open(4);
  ASSERT_TRUE(engine);
  const std::vector<std::vector<int32_t>> prompts = some_prompts(8, 23);
  const auto answers = alone(*engine, prompts, 24);
  for (const bool adaptive : {false, true}) {
    runtime::SchedulerStats stats;
    EXPECT_EQ(together(*engine, prompts, 24, drafter(*engine, 4), adaptive, stats), answers);
    EXPECT_EQ(stats.draft_failed, 0);
    if (!adaptive) {
      EXPECT_GT(stats.accepted_tokens, 0) << stats.drafted_tokens;
    }
  }
}

TEST_P(Predictions, PreemptedRequestsSayTheSame) {
  const auto roomy = open(4);
  ASSERT_TRUE(roomy);
  const std::vector<std::vector<int32_t>> prompts = some_prompts(4, 60);
  const auto answers = alone(*roomy, prompts, 120);
  // Room for two of them, about.
  const int64_t budget = static_cast<int64_t>(roomy->memory().kv_bytes) / 4;
  const auto engine = open(4, false, budget + static_cast<int64_t>(roomy->memory().state_bytes));
  if (!engine) return;
  runtime::SchedulerStats stats;
  EXPECT_EQ(together(*engine, prompts, 120, drafter(*engine, 4), false, stats), answers);
  EXPECT_EQ(stats.draft_failed, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, Predictions,
    ::testing::Values(Place{"deepseek3", "cpu-only.yaml", false, Place::Layer},
                      Place{"deepseek3", "moe-experts-on-cpu.yaml", true, Place::LayerWithHead},
                      Place{"qwen3_next", "cpu-only.yaml", false, Place::LayerWithHead},
                      Place{"qwen3_next", "all-gpu.yaml", true, Place::Layer},
                      Place{"glm4_moe", "cpu-only.yaml", false, Place::Layer},
                      Place{"llama", "cpu-only.yaml", false, Place::HeadOfFewer},
                      Place{"llama", "all-gpu.yaml", true, Place::HeadOfFewer},
                      Place{"qwen2", "cpu-only.yaml", false, Place::Head},
                      Place{"qwen3moe", "moe-experts-on-cpu.yaml", true, Place::HeadOfFewer},
                      Place{"qwen3_next", "cpu-only.yaml", false, Place::HeadOfFewer}),
    [](const auto& info) {
      return fmt::format("{}{}{}", info.param.model, info.param.gpu ? "_gpu" : "",
                         info.param.is_head() ? "_head" : "");
    });

// Counts, over all tokens of many answers with draft tokens, how often the most likely token was
// drawn, one of the next three, one of the next twelve, or any other, and compares the counts with
// the sums of the plain model's probabilities. With 3 degrees of freedom, chi-square is above 16.3
// once in a thousand times.
class SampledPredictions : public Predictions {
 protected:
  static constexpr std::array<size_t, 4> kRanks = {1, 4, 16, SIZE_MAX};
  static size_t group(size_t rank) {
    return static_cast<size_t>(std::ranges::upper_bound(kRanks, rank) - kRanks.begin());
  }
  // Adds a row's probabilities to `expected`, and its token to `seen`.
  void count(std::span<const float> logits, int32_t token) {
    const double best = *std::ranges::max_element(logits);
    std::vector<std::pair<double, int32_t>> weights;
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      weights.emplace_back(std::exp(logits[i] - best), static_cast<int32_t>(i));
      sum += weights.back().first;
    }
    std::ranges::sort(weights, std::greater());
    for (size_t rank = 0; rank < weights.size(); ++rank) {
      expected_[group(rank)] += weights[rank].first / sum;
      if (weights[rank].second == token) ++seen_[group(rank)];
    }
  }
  std::array<double, 4> expected_{}, seen_{};
};

TEST_P(SampledPredictions, ComeAsOftenAsTheModelSays) {
  constexpr int kAnswers = 400, kLength = 4;
  const auto engine = open(2), plain = open(1);
  ASSERT_TRUE(engine && plain);
  const auto predictor = drafter(*engine, 2);
  runtime::Speculation speculation(*predictor, {3, false});
  const std::vector<int32_t> prompt = random_text(12, 3);
  int64_t accepted = 0, drafted = 0;
  for (uint64_t seed = 0; seed < kAnswers; ++seed) {
    runtime::SamplingOptions options;
    options.temperature = 1;
    options.top_k = 0;
    options.top_p = 1;
    options.min_p = 0;
    options.seed = seed;
    runtime::Session session(*engine,
                             runtime::Sampler::create(options, engine->vocab_size()).take());
    session.keep_logits(false);
    session.speculate(&speculation);
    ASSERT_TRUE(session.set_prompt(prompt).ok());
    const std::vector<int32_t> answer = next_tokens(session, kLength);
    ASSERT_EQ(answer.size(), kLength);
    accepted += session.stats().accepted_tokens;
    drafted += session.stats().drafted_tokens;

    runtime::Sequence text = plain->new_sequence();
    std::vector<int32_t> tokens = {prompt.back()};
    tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
    const runtime::BatchItem before{&text, std::span(prompt).first(prompt.size() - 1),
                                    runtime::Want::None};
    const runtime::BatchItem item{&text, tokens, runtime::Want::All};
    ASSERT_TRUE(plain->forward({&before, 1}).ok());
    ASSERT_TRUE(plain->forward({&item, 1}).ok());
    for (size_t t = 0; t < answer.size(); ++t) {
      count(plain->logits(static_cast<int64_t>(t)), answer[t]);
    }
  }
  EXPECT_EQ(speculation.failure(), "");
  EXPECT_GT(accepted, kAnswers / 20) << "of " << drafted;
  EXPECT_LT(accepted, drafted);
  double chi_square = 0;
  for (size_t i = 0; i < kRanks.size(); ++i) {
    EXPECT_GT(expected_[i], 20) << "group " << i << " says nothing";
    chi_square += (seen_[i] - expected_[i]) * (seen_[i] - expected_[i]) / expected_[i];
  }
  EXPECT_LT(chi_square, 16.3);
  RecordProperty("chi_square", fmt::format("{:.2f}", chi_square));
  RecordProperty("accepted", static_cast<int>(accepted));
  RecordProperty("drafted", static_cast<int>(drafted));
}

INSTANTIATE_TEST_SUITE_P(
    All, SampledPredictions,
    ::testing::Values(Place{"llama", "cpu-only.yaml", false, Place::HeadOfFewer},
                      Place{"deepseek3", "cpu-only.yaml", false, Place::Layer}),
    [](const auto& info) { return info.param.is_head() ? "head" : "layer"; });

// --- the programs ------------------------------------------------------------------------------

class DraftersWithin : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const auto gguf = input::GgufFile::open(model_gguf("deepseek3"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    ASSERT_TRUE(add_prediction_layer(*gguf, dir_->path("mtp.gguf")).ok());
    compile_with(dir_->path("mtp.gguf"), dir_->path("mtp.ktxplan"), {"--draft", "mtp"});
    const auto llama = input::GgufFile::open(model_gguf("llama"));
    ASSERT_TRUE(llama.ok()) << llama.error().message;
    ASSERT_TRUE(write_draft_head(*llama, dir_->path("head.gguf"), {.every = 5}).ok());
    compile_with(model_gguf("llama"), dir_->path("head.ktxplan"),
                 {"--draft", dir_->path("head.gguf")});
    compile_with(model_gguf("qwen3moe"), dir_->path("plain.ktxplan"), {});
    compile_with(model_gguf("qwen3moe"), dir_->path("small.ktxplan"),
                 {"--draft", model_gguf("qwen3moe")});
    compile_with(model_gguf("qwen3moe"), dir_->path("ready.ktxplan"),
                 {"--draft", dir_->path("plain.ktxplan")});
  }
  static void TearDownTestSuite() { delete dir_; }
  static Finished run(const std::string& plan, const std::vector<std::string>& more) {
    std::vector<std::string> line = {ktx_run(), "generate", dir_->path(plan),
                                     "--chat",  "--prompt", "Tell me a story about a fox.",
                                     "-n",      "60",       "--json",
                                     "-t",      "2"};
    line.insert(line.end(), more.begin(), more.end());
    return run_program(line);
  }
  static json answer(const std::string& plan, const std::vector<std::string>& more) {
    const Finished finished = run(plan, more);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return json::parse(finished.out, nullptr, false);
  }
  static TempDir* dir_;
};
TempDir* DraftersWithin::dir_ = nullptr;

TEST_F(DraftersWithin, GiveTheAnswerWithoutThem) {
  for (const char* plan : {"mtp.ktxplan", "head.ktxplan", "small.ktxplan", "ready.ktxplan"}) {
    for (const std::vector<std::string>& sampling :
         {std::vector<std::string>{"--temp", "0"}, {"--temp", "1.1", "--seed", "5"}}) {
      json plain = answer(plan, sampling);
      EXPECT_FALSE(plain["timings"].contains("draft_tokens")) << "nothing drafts unasked";
      std::vector<std::string> more = sampling;
      more.insert(more.end(), {"--draft", "on", "--draft-adapt", "off", "--draft-max", "4"});
      json drafted = answer(plan, more);
      EXPECT_GT(drafted["timings"]["draft_tokens"], 0) << plan;
      EXPECT_GT(drafted["timings"]["accepted_tokens"], 0) << plan;
      plain.erase("timings");
      drafted.erase("timings");
      EXPECT_EQ(drafted, plain) << plan;
    }
  }
}

// --draft changes nothing of the plan but what is added.
TEST_F(DraftersWithin, LeaveThePlanAsItIs) {
  json plain = answer("plain.ktxplan", {"--temp", "0"});
  json with = answer("small.ktxplan", {"--temp", "0"});
  plain.erase("timings");
  with.erase("timings");
  EXPECT_EQ(with, plain);
  for (const char* plan : {"mtp.ktxplan", "head.ktxplan"}) {
    const Finished inspect = run_program({ktx_run(), "inspect", dir_->path(plan)});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    EXPECT_NE(inspect.out.find("drafter"), std::string::npos) << inspect.out;
    const Finished verify = run_program({ktx_run(), "inspect", dir_->path(plan), "--verify"});
    EXPECT_EQ(verify.status, 0) << verify.err;
  }
}

TEST_F(DraftersWithin, MistakesSayWhatToDo) {
  const Finished none = run("plain.ktxplan", {"--draft", "on"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("the plan has no drafter; compile it with one"), std::string::npos)
      << none.err;
  const auto error = [&](const std::vector<std::string>& more, int status) {
    std::vector<std::string> line = {ktx_compile(), "-q", model_gguf("qwen3moe")};
    line.insert(line.end(), more.begin(), more.end());
    const Finished finished = run_program(line);
    EXPECT_EQ(finished.status, status) << finished.err;
    return finished.err;
  };
  const std::string output = dir_->path("x.ktxplan");
  EXPECT_NE(error({"-o", output, "--draft", "mtp"}, 1)
                .find("has no layers for multi-token prediction (tensors 'blk."),
            std::string::npos);
  EXPECT_NE(error({"-o", output, "--draft", dir_->path("none.gguf")}, 1).find("none.gguf"),
            std::string::npos);
  EXPECT_NE(error({"--emit=step-ir", "--draft", "mtp"}, 2).find("the plan that -o names"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_FALSE(std::filesystem::exists(output + ".drafter"));
}

// In batches, sampled, and under a grammar.
class DraftersOfPrograms : public DraftersWithin,
                           public ::testing::WithParamInterface<const char*> {};

TEST_P(DraftersOfPrograms, BenchAndTheServerUseThem) {
  const std::string plan = dir_->path(GetParam());
  const Finished bench = run_program(
      {ktx_run(), "bench",       plan, "-p", "0",  "-n",   "30",      "-b", "1,2",
       "-r",      "1",           "-t", "2",  "-o", "json", "--draft", "on", "--draft-adapt",
       "off",     "--draft-max", "3"});
  ASSERT_EQ(bench.status, 0) << bench.err;
  EXPECT_EQ(bench.err.find("differ"), std::string::npos) << bench.err;
  const json rows = json::parse(bench.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_GT(rows[1]["guesses"]["drafted"], 0);

  const std::vector<std::string> common = {plan, "--ctx", "512", "-t", "2", "--max-batch", "3"};
  const auto body = [](int i) {
    json request = {{"messages", {{{"role", "user"}, {"content", fmt::format("Count to {}.", i)}}}},
                    {"max_tokens", 30},
                    {"temperature", i % 2 == 0 ? 0.0 : 0.9},
                    {"seed", i}};
    if (i % 3 == 1) request["response_format"] = {{"type", "json_object"}};
    return request.dump();
  };
  const auto ask_all = [&](const ServerProcess& server) {
    std::vector<std::future<json>> answers;
    for (int i = 0; i < 9; ++i) {
      answers.push_back(std::async(std::launch::async, [&server, request = body(i)] {
        const HttpAnswer reply = server.post("/v1/chat/completions", request);
        EXPECT_EQ(reply.status, 200) << reply.body;
        json choices = reply.json()["choices"];
        for (json& choice : choices) choice.erase("id_slot");
        return choices;
      }));
    }
    std::vector<json> got;
    for (auto& one : answers) got.push_back(one.get());
    return got;
  };
  std::vector<json> plain;
  {
    const ServerProcess server(common);
    plain = ask_all(server);
  }
  std::vector<std::string> line = common;
  line.insert(line.end(), {"--draft", "on", "--draft-adapt", "off", "--draft-max", "3"});
  const ServerProcess server(line);
  EXPECT_EQ(ask_all(server), plain);
  const json stats = server.get("/stats").json();
  EXPECT_GT(stats["drafted_tokens_total"], 0);
  EXPECT_GT(stats["accepted_tokens_total"], 0);
}

INSTANTIATE_TEST_SUITE_P(All, DraftersOfPrograms, ::testing::Values("mtp.ktxplan", "head.ktxplan"),
                         [](const auto& info) {
                           return std::string(info.param,
                                              info.param + std::strcspn(info.param, "."));
                         });

}  // namespace
}  // namespace ktx::testing
