// States of a fixed size, over whole models with delta nets, state spaces and short convolutions: a
// text answers alike however it was cut, saved, taken back, preempted or run beside others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>

#include "lib/plan/state_layout.h"
#include "lib/runtime/draft/scripted_drafter.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/state_models.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::Outcome;
using runtime::Session;

class StateCache : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string gguf = state_model_gguf(GetParam(), dir_);
    if (gguf.empty()) GTEST_SKIP() << "no model " << GetParam();
    const Finished run = run_program({ktx_compile(), "-q", gguf, "-o", dir_.path("m.ktxplan")});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  std::unique_ptr<Engine> open(int64_t chunk, int64_t batch = 1, int64_t kv_budget = 0) const {
    EngineOptions options;
    options.threads = 2;
    options.ctx = 1024;
    options.chunk_tokens = chunk;
    options.max_batch = batch;
    if (kv_budget > 0) options.kv_budget_bytes = kv_budget;
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
};

TEST_P(StateCache, EverySequenceTakesTheMemoryOfItsStates) {
  const auto one = open(64), four = open(64, 4);
  ASSERT_TRUE(one && four);
  const uint64_t states = plan::state_layout(one->plan()).bytes();
  static const std::map<std::string_view, uint64_t> kFloats = {
      // Three delta nets: 3 inputs of 512 channels, and 4 matrices of 64 x 64.
      {"qwen3_next", 3 * (3 * 512 + 4 * 64 * 64)},
      // Three state spaces: 3 inputs of 8 x 24 + 2 x 2 x 20 channels, and 8 matrices of 24 x 20.
      {"granitehybrid", 3 * (3 * 272 + 8 * 24 * 20)},
      // Three short convolutions: 3 inputs of 96 channels.
      {"lfm2_moe", 3 * 3 * 96},
  };
  if (const auto known = kFloats.find(GetParam()); known != kFloats.end()) {
    EXPECT_EQ(states, known->second * sizeof(float));
  }
  EXPECT_EQ(one->memory().state_bytes, (2 + 4) * states) << "before and behind a pass; snapshots";
  EXPECT_EQ(four->memory().state_bytes, 4 * (2 + 4) * states);
  EXPECT_EQ(four->cache().state().states_total, 24);
}

TEST_P(StateCache, TextsGoOnAlikeHoweverTheyWereCut) {
  const std::vector<int32_t> prompt = random_text(300, 1);
  const std::vector<int32_t> answer = expected(prompt, 60);
  for (int64_t chunk : {1, 7, 64}) {
    const auto engine = open(chunk);
    Session s = session(*engine);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(next_tokens(s, 60), answer) << "chunks of " << chunk;
  }
}

TEST_P(StateCache, ATextThatIsTakenBackGoesOnAlike) {
  const auto engine = open(64);
  Session s = session(*engine);
  std::vector<int32_t> prompt = random_text(200, 2);
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  const std::vector<int32_t> answer = next_tokens(s, 40);
  for (int64_t kept : {199, 150, 5}) {
    std::vector<int32_t> other(prompt.begin(), prompt.begin() + kept);
    const std::vector<int32_t> more = random_text(20, 3 + static_cast<uint64_t>(kept));
    other.insert(other.end(), more.begin(), more.end());
    ASSERT_TRUE(s.set_prompt(other).ok());
    EXPECT_EQ(next_tokens(s, 20), expected(other, 20)) << kept;
  }
  ASSERT_TRUE(s.set_prompt(prompt).ok());
  EXPECT_EQ(next_tokens(s, 40), answer);
  s.truncate(220);
  EXPECT_EQ(next_tokens(s, 20), std::vector<int32_t>(answer.begin() + 20, answer.end()));
}

// Its states go back to the end of the prompt, and to multiples of 512 tokens before.
TEST_P(StateCache, AnAnswerIsGivenAgainWithoutThePrompt) {
  const auto engine = open(64);
  Session s = session(*engine);
  const std::vector<int32_t> prompt = random_text(700, 9);
  for (int count : {10, 100}) {  // within the block of the prompt's end, and beyond
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    const std::vector<int32_t> answer = next_tokens(s, count);
    const int64_t computed = engine->stats().tokens;
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(engine->stats().tokens - computed, 1);
    EXPECT_EQ(next_tokens(s, count), answer);
  }
  std::vector<int32_t> other(prompt.begin(), prompt.begin() + 520);
  const std::vector<int32_t> more = random_text(30, 10);
  other.insert(other.end(), more.begin(), more.end());
  const int64_t computed = engine->stats().tokens;
  ASSERT_TRUE(s.set_prompt(other).ok());
  // Rows that pools are made of are kept like a window: their blocks have gone.
  const bool windows =
      std::ranges::any_of(engine->plan().program->kv_slots,
                          [](const program::KvSlot& slot) { return slot.window > 0; });
  EXPECT_EQ(engine->stats().tokens - computed, windows ? 550 : 550 - 512);
  EXPECT_EQ(next_tokens(s, 20), expected(other, 20));
}

TEST_P(StateCache, AConversationGoesOnWhereItEnded) {
  const auto engine = open(64);
  Session s = session(*engine);
  std::vector<int32_t> all = random_text(100, 4);
  ASSERT_TRUE(s.set_prompt(all).ok());
  for (uint64_t turn = 0; turn < 4; ++turn) {
    const std::vector<int32_t> answer = next_tokens(s, 10);
    all.insert(all.end(), answer.begin(), answer.end());
    const std::vector<int32_t> more = random_text(15, 50 + turn);
    all.insert(all.end(), more.begin(), more.end());
    const int64_t computed = engine->stats().tokens;
    ASSERT_TRUE(s.set_prompt(all).ok());
    EXPECT_LE(engine->stats().tokens - computed, 16) << "what is new, and the answer's last token";
  }
  EXPECT_EQ(next_tokens(s, 10), expected(all, 10));
}

TEST_P(StateCache, SavedSessionsGoOnAlike) {
  const std::vector<int32_t> prompt = random_text(150, 5);
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
  EXPECT_EQ(next_tokens(s, 30), std::vector<int32_t>(answer.begin() + 10, answer.end()));
  EXPECT_LE(engine->stats().tokens, 31) << "the states were in the file";
}

TEST_P(StateCache, ASessionSavedBehindThePromptGoesOnAlike) {
  const std::vector<int32_t> prompt = random_text(200, 11);
  const std::vector<int32_t> answer = expected(prompt, 20);
  const std::string path = dir_.path("s.session");
  {
    const auto engine = open(64);
    Session s = session(*engine);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    ASSERT_TRUE(s.save(path).ok());
    EXPECT_EQ(next_tokens(s, 20), answer) << "and it goes on itself";
  }
  const auto engine = open(64);
  Session s = session(*engine);
  ASSERT_TRUE(s.load(path).ok());
  EXPECT_EQ(next_tokens(s, 20), answer);
  EXPECT_EQ(engine->stats().tokens, 20)
      << "the prompt's last token, and the answer but for its last";
}

TEST_P(StateCache, ASessionSavedInThePromptGoesOnAlike) {
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

// Draft tokens that were wrong are taken back, with what they did to the states.
TEST_P(StateCache, DraftTokensChangeNoAnswer) {
  const std::vector<int32_t> prompt = random_text(100, 12);
  const std::vector<int32_t> answer = expected(prompt, 60);
  std::vector<int32_t> text = prompt;
  text.insert(text.end(), answer.begin(), answer.end());
  EngineOptions options;
  options.threads = 2;
  options.ctx = 1024;
  options.sequence_logits = 5;
  options.rollback_tokens = 4;
  auto engine = Engine::open(dir_.path("m.ktxplan"), options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  for (const double acceptance : {0.0, 0.6, 1.0}) {
    runtime::ScriptedDrafter drafter(
        {.acceptance = acceptance, .vocab_size = (*engine)->vocab_size()});
    drafter.set_answers({text});
    runtime::Speculation speculation(drafter, {4, false});
    Session s = session(**engine);
    s.speculate(&speculation);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(next_tokens(s, 60), answer) << acceptance;
    EXPECT_GT(s.stats().drafted_tokens, 0);
  }
}

// More requests than places, and a cache that holds two of them at a time: some are preempted.
TEST_P(StateCache, RequestsAnswerAsIfAlone) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> answers;
  for (uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(random_text(60 + 25 * static_cast<int64_t>(i), 70 + i));
    answers.push_back(expected(prompts.back(), 40));
  }
  const auto all = open(64, 4);
  const int64_t block = static_cast<int64_t>(all->memory().kv_token.whole) * 64;
  const auto states = static_cast<int64_t>(all->memory().state_bytes) / 24;
  // (Without attention a block takes nothing: room for a snapshot.)
  const auto engine = open(64, 4, 4 * 2 * states + (block > 0 ? 9 * block : states));
  ASSERT_TRUE(engine);
  runtime::BatchScheduler scheduler(*engine, runtime::SchedulerOptions{});
  std::vector<std::promise<void>> done(prompts.size());
  std::vector<std::vector<int32_t>> found(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    runtime::GenerationRequest request;
    request.prompt = prompts[i];
    request.sampling = varied_greedy();
    request.max_tokens = 40;
    request.on_token = [&found, i](const runtime::TokenEvent& token) {
      found[i].push_back(token.id);
      return true;
    };
    request.on_end = [&done, i](const runtime::RequestEnd&) { done[i].set_value(); };
    ASSERT_NE(scheduler.submit(std::move(request)), 0);
  }
  for (auto& one : done) one.get_future().wait();
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(found[i], answers[i]) << "request " << i;
}

INSTANTIATE_TEST_SUITE_P(Models, StateCache, ::testing::ValuesIn(kStateModels),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(WithWindows, StateCache, ::testing::Values("glm5_next", "qwen4_exp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ktx::testing
