// Several passes on their way over the hosts of a plan: every answer is that of one machine, bit by
// bit, with texts in other passes, chunks of a prompt behind each other, passes that are stopped
// and requests that are cancelled; when a host is lost, every request ends with its name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <optional>

#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "tests/hosts/host_plans.h"
#include "tests/support/host_threads.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::BatchScheduler;
using runtime::EndReason;
using runtime::Engine;
using runtime::EngineOptions;
using runtime::Forward;
using runtime::Sequence;
using runtime::Want;
using ::testing::HasSubstr;

EngineOptions eight(std::shared_ptr<runtime::HostGroup> hosts = nullptr) {
  EngineOptions options = small(std::move(hosts));
  options.max_batch = 8;
  return options;
}

// A text that is computed in chunks and then goes on by itself.
struct Text {
  std::optional<Sequence> sequence;
  std::vector<int32_t> tokens;
  size_t begun = 0;
  Bits bits;  // of all its logits
};

// Texts of other lengths, each pass of one of them, as many passes in flight as there may be.
std::vector<Bits> talk_in_turn(Engine& engine, int texts, int answer) {
  std::vector<Text> all(static_cast<size_t>(texts));
  std::deque<std::pair<Text*, Want>> in_flight;
  for (int i = 0; i < texts; ++i) {
    all[i].sequence = engine.new_sequence();
    all[i].tokens = random_text(50 + 37 * i, 100 + i);
  }
  const auto finish = [&] {
    const auto [text, want] = in_flight.front();
    in_flight.pop_front();
    const auto done = engine.finish();
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ(*done, Forward::Done);
    if (want == Want::None) return;
    add_bits(engine, text->bits);
    text->tokens.push_back(best_id(engine, 0));
  };
  const auto prompt = [&](const Text& text) { return 50 + 37 * (&text - &all[0]); };
  for (bool more = true; more;) {
    more = false;
    for (Text& text : all) {
      const auto is_text = [&](const auto& pass) { return pass.first == &text; };
      const auto waits = [&] {
        return std::ranges::any_of(in_flight, is_text) &&
               (text.begun == text.tokens.size() || !engine.goes_ahead());
      };
      while (std::ssize(in_flight) == engine.most_forwards() || waits()) finish();
      if (::testing::Test::HasFatalFailure()) return {};
      if (std::ssize(text.tokens) > prompt(text) + answer) continue;
      more = true;
      const size_t count = std::min<size_t>(text.tokens.size() - text.begun, 40);
      const auto ids = std::span(text.tokens).subspan(text.begun, count);
      text.begun += count;
      const Want want = text.begun == text.tokens.size() ? Want::Last : Want::None;
      const BatchItem item{&*text.sequence, ids, want};
      const auto begun = engine.begin({&item, 1});
      EXPECT_TRUE(begun.ok() && *begun == Forward::Done);
      in_flight.push_back({&text, want});
    }
  }
  while (!in_flight.empty()) finish();
  std::vector<Bits> bits;
  for (Text& text : all) bits.push_back(std::move(text.bits));
  return bits;
}

class Pipeline : public ModelOfHosts {};

TEST_P(Pipeline, PassesInFlightGiveTheBitsOfOneMachine) {
  const Plan alone(gguf_, 1);
  const auto expected = talk_in_turn(*open(alone.path(), eight()), 6, 5);
  ASSERT_EQ(expected.size(), 6u);
  EXPECT_FALSE(expected[5].empty());
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    const Plan plan(gguf_, count);
    HostThreads hosts(plan.path(), count);
    {
      const auto engine = open(plan.path(), eight(hosts.first()));
      ASSERT_TRUE(engine);
      EXPECT_EQ(engine->most_forwards(), std::ssize(plan.used()));
      EXPECT_EQ(talk_in_turn(*engine, 6, 5), expected);
    }
    hosts.end();
    for (int rank = 1; rank < count; ++rank) EXPECT_EQ(hosts.end_of(rank), "");
  }
}

TEST_P(Pipeline, APassThatIsStoppedEndsThoseOfItsTextAlone) {
  const Plan plan(gguf_, 2);
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), eight(hosts.first()));
  ASSERT_TRUE(engine);
  const auto expected = talk_in_turn(*engine, 3, 2);
  const std::vector<int32_t> prompt = random_text(80, 4);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    Sequence stopped = engine->new_sequence(), other = engine->new_sequence();
    std::atomic<bool> stop = i == 0;
    const double at = 0.2 * i;
    const runtime::ForwardWatch watch{.stop = &stop, .progress = [&](double share) {
                                        if (share >= at) stop.store(true);
                                      }};
    const BatchItem first{&stopped, std::span(prompt).first(40), Want::None};
    const BatchItem behind{&stopped, std::span(prompt).subspan(40), Want::Last};
    const BatchItem of_other{&other, prompt, Want::Last};
    EXPECT_EQ(engine->begin({&first, 1}, {}, &watch).take(), Forward::Done);
    const bool ahead = i % 2 == 0 && engine->goes_ahead();
    EXPECT_EQ(engine->begin({ahead ? &behind : &of_other, 1}).take(), Forward::Done);
    const Forward end = engine->finish().take();
    const Forward next = engine->finish().take();
    EXPECT_EQ(next, ahead ? end : Forward::Done);
    const int64_t computed = end == Forward::Done ? 40 : 0;
    EXPECT_EQ(stopped.length(), ahead ? 2 * computed : computed);
    EXPECT_EQ(other.length(), ahead ? 0 : 80);
  }
  EXPECT_EQ(talk_in_turn(*engine, 3, 2), expected);
}

// What requests of a scheduler answer.
struct Answer {
  std::vector<int32_t> ids;
  runtime::RequestEnd end;
};

class Requests {
 public:
  Requests(Engine& engine, const runtime::SchedulerOptions& options = {})
      : scheduler_(engine, options) {}

  runtime::RequestId ask(std::vector<int32_t> prompt, int64_t tokens, uint64_t seed) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto ids = std::make_shared<std::vector<int32_t>>();
    runtime::GenerationRequest request;
    request.prompt = std::move(prompt);
    request.max_tokens = tokens;
    request.sampling.seed = seed;
    request.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
    request.on_token = [ids](const runtime::TokenEvent& token) {
      ids->push_back(token.id);
      return true;
    };
    request.on_end = [ids, promise](const runtime::RequestEnd& end) {
      promise->set_value({*ids, end});
    };
    answers_.push_back(promise->get_future());
    return scheduler_.submit(std::move(request));
  }
  Answer answer(size_t i) { return answers_[i].get(); }
  BatchScheduler& scheduler() { return scheduler_; }

 private:
  std::vector<std::future<Answer>> answers_;
  BatchScheduler scheduler_;
};

// Prompts of which some begin alike, some are longer than a chunk.
std::vector<int32_t> prompt_of(int request) {
  std::vector<int32_t> prompt = random_text(request % 3 == 0 ? 200 : 20 + request, 50);
  const std::vector<int32_t> own = random_text(10 + 3 * request, 60 + request);
  prompt.insert(prompt.end(), own.begin(), own.end());
  return prompt;
}

std::vector<std::vector<int32_t>> ask_eight(Engine& engine) {
  Requests requests(engine);
  std::vector<std::vector<int32_t>> answers;
  for (int i = 0; i < 8; ++i) requests.ask(prompt_of(i), 30 + i, i);
  for (int i = 0; i < 8; ++i) {
    const Answer answer = requests.answer(i);
    EXPECT_EQ(answer.end.reason, EndReason::Length) << answer.end.error;
    answers.push_back(answer.ids);
  }
  return answers;
}

TEST_P(Pipeline, EightRequestsGetTheAnswersOfOneMachine) {
  const Plan alone(gguf_, 1);
  const auto expected = ask_eight(*open(alone.path(), eight()));
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    const Plan plan(gguf_, count);
    HostThreads hosts(plan.path(), count);
    const auto engine = open(plan.path(), eight(hosts.first()));
    ASSERT_TRUE(engine);
    EXPECT_EQ(ask_eight(*engine), expected);
    EXPECT_EQ(ask_eight(*engine), expected) << "with what the cache has of them";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pipeline, ::testing::ValuesIn(present_models()),
                         [](const auto& info) { return std::string(info.param); });

std::string llama() {
  return test_model_gguf("llama");
}

TEST(PipelineOfRequests, ThoseThatAreCancelledDisturbNoOther) {
  const Plan alone(llama(), 1), plan(llama(), 2);
  const auto expected = ask_eight(*open(alone.path(), eight()));
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), eight(hosts.first()));
  ASSERT_TRUE(engine);
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    Requests requests(*engine);
    std::vector<runtime::RequestId> ids;
    for (int i = 0; i < 8; ++i) ids.push_back(requests.ask(prompt_of(i), 30 + i, i));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    for (int i = 0; i < 8; i += 2) requests.scheduler().cancel(ids[i]);
    bool saved = false;
    requests.scheduler().call_with_slot(
        1, [&](Engine& between, const auto&, const Sequence*) { saved = between.passes() == 0; });
    EXPECT_TRUE(saved);
    for (int i = 0; i < 8; ++i) {
      const Answer answer = requests.answer(i);
      if (i % 2 == 0 && answer.end.reason == EndReason::Cancelled) {
        EXPECT_LE(answer.ids.size(), expected[i].size());
        EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), expected[i].begin()));
        continue;
      }
      EXPECT_EQ(answer.end.reason, EndReason::Length) << answer.end.error;
      EXPECT_EQ(answer.ids, expected[i]);
    }
    if (round == 4) requests.ask(prompt_of(1), 200, 1);  // the end of the scheduler ends it
  }
}

TEST(PipelineOfRequests, ACacheThatIsTooSmallForAllMakesNoDifference) {
  const Plan alone(llama(), 1), plan(llama(), 2);
  const auto expected = ask_eight(*open(alone.path(), eight()));
  HostThreads hosts(plan.path(), 2);
  EngineOptions options = eight(hosts.first());
  const auto whole = Engine::open(alone.path(), eight());
  ASSERT_TRUE(whole.ok());
  options.kv_budget_bytes = static_cast<int64_t>((*whole)->memory().kv_bytes / 8);
  const auto engine = open(plan.path(), options);
  options.hosts.reset();
  ASSERT_TRUE(engine);
  EXPECT_LE(engine->cache().state().total, 12);
  EXPECT_EQ(ask_eight(*engine), expected);
}

TEST(PipelineOfRequests, EachIsToldWhenAHostIsLost) {
  const Plan plan(llama(), 4);
  runtime::HostTimes times;
  times.sign_of_life = 0.05;
  times.silence = 1.5;
  HostThreads hosts({plan.path()}, 4, times);
  auto engine = open(plan.path(), eight(hosts.first()));
  ASSERT_TRUE(engine);
  {
    Requests requests(*engine);
    for (int i = 0; i < 8; ++i) requests.ask(prompt_of(i), 250, i);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    hosts.cut(2);
    for (int i = 0; i < 8; ++i) {
      const Answer answer = requests.answer(i);
      EXPECT_EQ(answer.end.reason, EndReason::Failed);
      EXPECT_THAT(answer.end.error, HasSubstr("host b2 (rank 2) has given no sign of life"));
    }
  }
  engine.reset();
}

TEST(PipelineOfPasses, AHostThatIsLostEndsAllOfThem) {
  const Plan plan(llama(), 2);
  runtime::HostTimes times;
  times.sign_of_life = 0.05;
  times.silence = 1.5;
  HostThreads hosts({plan.path()}, 2, times);
  auto engine = open(plan.path(), eight(hosts.first()));
  ASSERT_TRUE(engine);
  const std::vector<int32_t> prompt = random_text(60, 5);
  std::optional<Sequence> a = engine->new_sequence(), b = engine->new_sequence();
  const BatchItem of_a{&*a, prompt, Want::Last}, of_b{&*b, prompt, Want::Last};
  hosts.cut(1);
  ASSERT_TRUE(engine->begin({&of_a, 1}).ok());
  ASSERT_TRUE(engine->begin({&of_b, 1}).ok());
  for (int pass = 0; pass < 2; ++pass) {
    const auto done = engine->finish();
    ASSERT_FALSE(done.ok());
    EXPECT_THAT(done.error().message, HasSubstr("host b (rank 1) has given no sign of life"));
  }
  EXPECT_EQ(a->length(), 0);
  EXPECT_EQ(engine->passes(), 0);
  a.reset();
  b.reset();
  engine.reset();
}

// A text may end while a pass has it.
TEST(PipelineOfPasses, AreAwaitedByATextThatEnds) {
  const Plan plan(llama(), 2);
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), eight(hosts.first()));
  ASSERT_TRUE(engine);
  const std::vector<int32_t> prompt = random_text(60, 5);
  {
    Sequence sequence = engine->new_sequence();
    const BatchItem item{&sequence, prompt, Want::Last};
    ASSERT_TRUE(engine->begin({&item, 1}).ok());
    EXPECT_EQ(sequence.begun(), 60);
    EXPECT_EQ(sequence.length(), 0);
  }
  EXPECT_EQ(engine->passes(), 0);
  EXPECT_EQ(engine->cache().state().free, engine->cache().state().total);
}

TEST(PipelineOfPasses, TakeTurnsWhereTheFirstHostHasLayersBehindAnothers) {
  const std::string there = "  - match: {layers: [0, 2]}\n    replace: {device: b/cpu}\n";
  const std::string here = "  - match: {name: \".\"}\n    replace: {device: a/cpu}\n";
  const std::string head = "  - match: {kind: head}\n    replace: {device: b/cpu}\n";
  for (const std::string& rules : {there + here, head + here}) {
    const Plan plan(llama(), 2, rules);
    HostThreads hosts(plan.path(), 2);
    const auto engine = open(plan.path(), eight(hosts.first()));
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->most_forwards(), 1);
    EXPECT_FALSE(ask_eight(*engine).empty());
  }
}

}  // namespace
}  // namespace ktx::testing
