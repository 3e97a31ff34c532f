// Several keys at one scheduler: the passes until another key's first token are counted, and no
// answer is another one for having made room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>

#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/unit/runtime/generate.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

std::vector<int32_t> some_ids(int count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random.next() % kTinyVocab));
  return ids;
}

struct KeyAnswer {
  std::vector<int32_t> ids;
  RequestEnd end;
  int64_t asked_at = 0, first_token_at = 0;  // passes
};

class KeyFairness : public ::testing::Test {
 protected:
  ~KeyFairness() override { scheduler_.reset(); }

  static EngineOptions batch(int64_t sequences, int64_t ctx) {
    EngineOptions options;
    options.max_batch = sequences;
    options.ctx = ctx;
    options.chunk_tokens = 64;
    options.threads = 1;
    return options;
  }
  // With so many blocks of the cache.
  EngineOptions with_blocks(EngineOptions options, int64_t blocks) {
    auto probe = Engine::open(plan_.path(), options).take();
    const plan::MemoryEstimate& memory = probe->memory();
    options.kv_budget_bytes =
        static_cast<int64_t>(memory.kv_bytes / memory.kv_blocks.whole) * blocks;
    return options;
  }
  void open(const EngineOptions& options, SchedulerOptions scheduler = {}) {
    auto engine = Engine::open(plan_.path(), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine.take();
    scheduler.after_step = [this](Engine&) {
      ++passes_;
      if (const auto found = at_pass_.find(passes_); found != at_pass_.end()) found->second();
    };
    scheduler_ = std::make_unique<BatchScheduler>(*engine_, scheduler);
  }
  std::future<KeyAnswer> ask(const std::string& key, std::vector<int32_t> prompt,
                             int64_t max_tokens) {
    auto promise = std::make_shared<std::promise<KeyAnswer>>();
    auto answer = std::make_shared<KeyAnswer>();
    answer->asked_at = passes_;
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.owner = key;
    request.share.key = key;
    request.sampling.temperature = 0;
    request.on_token = [this, answer](const TokenEvent& token) {
      if (answer->ids.empty()) answer->first_token_at = passes_;
      answer->ids.push_back(token.id);
      return true;
    };
    request.on_end = [answer, promise](const RequestEnd& end) {
      answer->end = end;
      promise->set_value(*answer);
    };
    BatchScheduler::Refused refused;
    EXPECT_NE(scheduler_->submit(std::move(request), &refused), 0u) << refused.message;
    return promise->get_future();
  }
  std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int count) {
    auto engine = Engine::open(plan_.path(), batch(1, 1024)).take();
    SamplingOptions greedy;
    greedy.temperature = 0;
    Session session(*engine, Sampler::create(greedy, kTinyVocab).take());
    EXPECT_EQ(session.set_prompt(prompt).take(), Outcome::Ok);
    return generate(session, count);
  }
  // Holds the engine's thread until `meanwhile` is done.
  void hold(const std::function<void()>& meanwhile) {
    std::promise<void> entered, release;
    auto held = std::async(std::launch::async, [&] {
      scheduler_->call([&](Engine&) {
        entered.set_value();
        release.get_future().wait();
      });
    });
    entered.get_future().wait();
    meanwhile();
    release.set_value();
    held.get();
  }

  TinyPlan plan_;
  std::unique_ptr<Engine> engine_;
  int64_t passes_ = 0;  // the engine's thread's
  std::map<int64_t, std::function<void()>> at_pass_;
  std::unique_ptr<BatchScheduler> scheduler_;
};

TEST_F(KeyFairness, AFullBatchGivesWayWithinOnePass) {
  std::future<KeyAnswer> other;
  at_pass_[30] = [&] { other = ask("b", some_ids(50, 99), 5); };
  open(batch(4, 256));
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::future<KeyAnswer>> answers;
  hold([&] {
    for (int i = 0; i < 16; ++i) {
      prompts.push_back(some_ids(3 + i, i));
      answers.push_back(ask("a", prompts.back(), 60));
    }
  });
  int preemptions = 0;
  for (int i = 0; i < 16; ++i) {
    const KeyAnswer answer = answers[i].get();
    EXPECT_EQ(answer.end.reason, EndReason::Length);
    EXPECT_EQ(answer.ids, alone(prompts[i], 60)) << i;
    preemptions += answer.end.preemptions;
  }
  const KeyAnswer late = other.get();
  EXPECT_EQ(late.ids, alone(some_ids(50, 99), 5));
  EXPECT_EQ(late.asked_at, 30);
  EXPECT_EQ(late.first_token_at, 31) << "its own prompt, and no pass before it";
  EXPECT_EQ(preemptions, 1);
  EXPECT_EQ(late.end.preemptions, 0);
}

// Prompts of many chunks in every place: the short one's first token comes with its own pass, and
// theirs come too.
TEST_F(KeyFairness, HugePromptsGiveWayToAShortOne) {
  std::future<KeyAnswer> other;
  at_pass_[4] = [&] { other = ask("b", some_ids(40, 98), 3); };
  open(batch(2, 1024));
  std::vector<std::future<KeyAnswer>> answers;
  hold([&] {
    for (int i = 0; i < 3; ++i) answers.push_back(ask("a", some_ids(900, i), 2));
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answers[i].get().ids, alone(some_ids(900, i), 2));
  const KeyAnswer late = other.get();
  EXPECT_EQ(late.first_token_at, late.asked_at + 1);
}

TEST_F(KeyFairness, OnePlaceGoesToTheShortPrompt) {
  std::future<KeyAnswer> other;
  at_pass_[3] = [&] { other = ask("b", some_ids(40, 97), 3); };
  open(batch(1, 1024));
  std::future<KeyAnswer> whole;
  hold([&] { whole = ask("a", some_ids(900, 1), 2); });
  EXPECT_EQ(whole.get().ids, alone(some_ids(900, 1), 2));
  const KeyAnswer late = other.get();
  EXPECT_EQ(late.first_token_at, late.asked_at + 1);
}

// The places are free, the blocks of the cache are not.
TEST_F(KeyFairness, AFullCacheGivesWayToo) {
  std::future<KeyAnswer> other;
  at_pass_[100] = [&] { other = ask("b", some_ids(40, 96), 3); };
  open(with_blocks(batch(8, 320), 8));
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::future<KeyAnswer>> answers;
  hold([&] {
    for (int i = 0; i < 2; ++i) {
      prompts.push_back(some_ids(130, i));
      answers.push_back(ask("a", prompts.back(), 180));
    }
  });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(answers[i].get().ids, alone(prompts[i], 180));
  const KeyAnswer late = other.get();
  EXPECT_EQ(late.ids, alone(some_ids(40, 96), 3));
  EXPECT_LE(late.first_token_at, late.asked_at + 2);
}

// More keys than places, and a cache that holds not even these: all get their answers.
TEST_F(KeyFairness, ManyKeysAreAllAnswered) {
  SchedulerOptions scheduler;
  open(with_blocks(batch(3, 640), 14), scheduler);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::future<KeyAnswer>> answers;
  hold([&] {
    for (int i = 0; i < 14; ++i) {
      prompts.push_back(some_ids(10 + 23 * i, i));
      answers.push_back(ask(std::string(1, static_cast<char>('a' + i % 7)), prompts.back(), 290));
    }
  });
  int preemptions = 0;
  for (int i = 0; i < 14; ++i) {
    const KeyAnswer answer = answers[i].get();
    EXPECT_EQ(answer.end.reason, EndReason::Length);
    EXPECT_EQ(answer.ids, alone(prompts[i], 290)) << i;
    preemptions += answer.end.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_LT(preemptions, 150) << "places go round by hundreds of tokens";
}

TEST_F(KeyFairness, AFullQueueOfOneKeyTakesAnother) {
  SchedulerOptions scheduler;
  scheduler.max_queue = 6;
  open(batch(2, 256), scheduler);
  std::vector<std::future<KeyAnswer>> answers;
  const auto refused = [&](const std::string& key) {
    GenerationRequest request;
    request.prompt = {1};
    request.max_tokens = 1;
    request.share.key = key;
    BatchScheduler::Refused why;
    if (scheduler_->submit(std::move(request), &why) != 0) return false;
    EXPECT_EQ(why.why, BatchScheduler::Refusal::QueueFull);
    return true;
  };
  hold([&] {
    for (int i = 0; i < 8; ++i) answers.push_back(ask("a", some_ids(4, i), 5));
    EXPECT_TRUE(refused("a"));
    for (int i = 0; i < 4; ++i) answers.push_back(ask("b", some_ids(4, i), 5));
    EXPECT_TRUE(refused("b")) << "half of what there is";
    for (int i = 0; i < 2; ++i) answers.push_back(ask("c", some_ids(4, i), 5));
    EXPECT_TRUE(refused("c"));
    EXPECT_TRUE(refused("a"));
  });
  for (auto& answer : answers) EXPECT_EQ(answer.get().ids.size(), 5u);
  ASSERT_TRUE(scheduler_->wait_idle(std::chrono::minutes(15)));
  EXPECT_FALSE(refused("a"));
}

TEST_F(KeyFairness, AKeyHasNoMorePlacesThanItMay) {
  SchedulerOptions scheduler;
  scheduler.key_slots = 2;
  open(batch(4, 256), scheduler);
  std::vector<std::future<KeyAnswer>> answers;
  hold([&] {
    for (int i = 0; i < 5; ++i) answers.push_back(ask("a", some_ids(4, i), 40));
  });
  for (auto& answer : answers) answer.get();
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_LE(stats.step_requests, 2 * stats.steps);
}

}  // namespace
}  // namespace ktx::runtime
