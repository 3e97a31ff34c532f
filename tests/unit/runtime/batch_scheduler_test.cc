#include "lib/runtime/scheduler/batch_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <map>
#include <new>
#include <stdexcept>
#include <thread>

#include "lib/runtime/draft/lookup_drafter.h"
#include "lib/runtime/session/session.h"
#include "lib/runtime/session/session_file.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/runtime/generate.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> random_ids(int count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random.next() % kTinyVocab));
  return ids;
}

struct Answer {
  std::vector<int32_t> ids;
  RequestEnd end;
};

class BatchSchedulerTest : public ::testing::Test {
 protected:
  void open(EngineOptions options, SchedulerOptions scheduler = {}) {
    options.threads = 1;
    auto engine = Engine::open(plan_.path(), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    scheduler_.reset();
    engine_ = engine.take();
    scheduler_ = std::make_unique<BatchScheduler>(*engine_, scheduler);
  }
  ~BatchSchedulerTest() override { scheduler_.reset(); }

  static SamplingOptions sampling(uint64_t seed) {
    SamplingOptions options;
    options.seed = seed;
    options.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
    return options;
  }

  std::future<Answer> ask(std::vector<int32_t> prompt, int64_t max_tokens, uint64_t seed = 0,
                          RequestId* id = nullptr, std::optional<ContextShift> shift = {}) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto ids = std::make_shared<std::vector<int32_t>>();
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.shift = shift;
    request.sampling = sampling(seed);
    request.on_token = [ids](const TokenEvent& token) {
      ids->push_back(token.id);
      return true;
    };
    request.on_end = [ids, promise](const RequestEnd& end) { promise->set_value({*ids, end}); };
    BatchScheduler::Refused refused;
    const RequestId given = scheduler_->submit(std::move(request), &refused);
    EXPECT_NE(given, 0u) << refused.message;
    if (id != nullptr) *id = given;
    return promise->get_future();
  }

  // What a session of its own answers, in another engine.
  std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int count, uint64_t seed) {
    EngineOptions options;
    options.threads = 2;
    auto engine = Engine::open(plan_.path(), options).take();
    Session session(*engine, Sampler::create(sampling(seed), kTinyVocab).take());
    EXPECT_EQ(session.set_prompt(prompt).take(), Outcome::Ok);
    return generate(session, count);
  }

  // Keeps the engine's thread busy until the returned promise is set.
  std::shared_ptr<std::promise<void>> hold() {
    auto release = std::make_shared<std::promise<void>>();
    auto entered = std::make_shared<std::promise<void>>();
    holders_.push_back(std::async(std::launch::async, [this, release, entered] {
      scheduler_->call([&](Engine&) {
        entered->set_value();
        release->get_future().wait();
      });
    }));
    entered->get_future().wait();
    return release;
  }

  TinyPlan plan_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::vector<std::future<void>> holders_;
};

EngineOptions batch_of(int64_t sequences, int64_t ctx = 256) {
  EngineOptions options;
  options.max_batch = sequences;
  options.ctx = ctx;
  options.chunk_tokens = 48;
  return options;
}

TEST_F(BatchSchedulerTest, AnAnswerAmongOthersIsTheAnswerAlone) {
  open(batch_of(4));
  std::vector<std::future<Answer>> answers;
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 14; ++i) {
    prompts.push_back(random_ids(1 + i * 11, i));
    answers.push_back(ask(prompts.back(), 20 + i, i));
  }
  for (int i = 0; i < 14; ++i) {
    const Answer answer = answers[i].get();
    EXPECT_EQ(answer.end.reason, EndReason::Length);
    EXPECT_EQ(answer.ids, alone(prompts[i], 20 + i, i)) << "request " << i;
    EXPECT_EQ(answer.end.completion_tokens, 20 + i);
  }
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_EQ(stats.ended, 14);
  EXPECT_GT(stats.step_requests, stats.steps) << "nothing was computed together";
}

// What comes behind a drop is what the shorter text would have been answered with.
TEST_F(BatchSchedulerTest, AFullContextDropsTheMiddleOfItsText) {
  constexpr int64_t kCtx = 64, kTokens = 100;
  open(batch_of(2, kCtx));
  const std::vector<int32_t> prompt = random_ids(40, 3);
  for (const ContextShift shift : {ContextShift{}, ContextShift{5, 0}, ContextShift{7, 20},
                                   ContextShift{-1, 0}, ContextShift{0, 1}}) {
    auto first = ask(prompt, kTokens, 0, nullptr, shift);
    auto beside = ask(random_ids(9, 4), kTokens, 2, nullptr, shift);
    const Answer answer = first.get();
    EXPECT_EQ(answer.end.reason, EndReason::Length);
    EXPECT_EQ(beside.get().end.completion_tokens, kTokens);
    std::vector<int32_t> text = prompt, expected;
    int64_t dropped = 0;
    while (static_cast<int64_t>(expected.size()) < kTokens) {
      const auto total = static_cast<int64_t>(text.size());
      if (total > kCtx) {
        const int64_t keep = shift.keep < 0 ? 40 : shift.keep;
        const int64_t behind = total - keep;
        int64_t drop = shift.drop == 0 ? behind / 2 : std::max(shift.drop, behind / 8);
        text.erase(text.begin() + keep, text.begin() + keep + drop);
        dropped += drop;
        continue;
      }
      for (const int32_t id : alone(text, static_cast<int>(kCtx + 1 - total), 0)) {
        text.push_back(id);
        expected.push_back(id);
      }
    }
    expected.resize(kTokens);
    EXPECT_EQ(answer.ids, expected) << shift.keep << ' ' << shift.drop;
    EXPECT_EQ(answer.end.dropped_tokens, dropped);
  }
  // Without a limit the answer ends where the context is full.
  const Answer unlimited = ask(prompt, -1, 0, nullptr, ContextShift{}).get();
  EXPECT_EQ(unlimited.end.reason, EndReason::ContextFull);
  EXPECT_EQ(unlimited.end.dropped_tokens, 0);
}

TEST_F(BatchSchedulerTest, ASharedPrefixIsComputedOnce) {
  open(batch_of(4));
  const std::vector<int32_t> prefix = random_ids(200, 1);
  const auto release = hold();
  std::vector<std::future<Answer>> answers;
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 4; ++i) {
    prompts.push_back(prefix);
    prompts.back().push_back(i);
    answers.push_back(ask(prompts.back(), 5, 2 * i));
  }
  release->set_value();
  int64_t cached = 0;
  for (int i = 0; i < 4; ++i) {
    const Answer answer = answers[i].get();
    cached += answer.end.cached_tokens;
    EXPECT_EQ(answer.ids, alone(prompts[i], 5, 2 * i));
  }
  EXPECT_GE(cached, 3 * 192) << "three of four find its whole blocks";
  EXPECT_LE(scheduler_->stats().computed_tokens, 192 + 4 * 9 + 4 * 5);
}

TEST_F(BatchSchedulerTest, AFollowUpFindsItsConversation) {
  open(batch_of(2));
  std::vector<int32_t> talk = random_ids(100, 3);
  const Answer first = ask(talk, 10).get();
  EXPECT_EQ(first.end.cached_tokens, 0);
  talk.insert(talk.end(), first.ids.begin(), first.ids.end());
  talk.push_back(7);
  const Answer second = ask(talk, 3).get();
  EXPECT_EQ(second.end.cached_tokens, 109) << "all but the last token of the answer";
  EXPECT_EQ(second.ids, alone(talk, 3, 0));
  talk[50] = (talk[50] + 1) % kTinyVocab;
  const Answer third = ask(talk, 3).get();
  EXPECT_EQ(third.end.cached_tokens, 50);
  EXPECT_THAT(third.end.cache_miss, HasSubstr("differs at token 50"));
  EXPECT_EQ(third.ids, alone(talk, 3, 0));
}

TEST_F(BatchSchedulerTest, ARequestThatMadeRoomGoesOnAsIfNothingHadHappened) {
  EngineOptions options = batch_of(3, 192);
  auto probe = Engine::open(plan_.path(), options).take();
  // Four blocks for three requests that need three each in the end.
  options.kv_budget_bytes =
      static_cast<int64_t>(probe->memory().kv_bytes / probe->memory().kv_blocks.whole * 4);
  probe.reset();
  open(options);
  std::vector<std::future<Answer>> answers;
  std::vector<std::vector<int32_t>> prompts;
  const auto release = hold();
  for (int i = 0; i < 3; ++i) {
    prompts.push_back(random_ids(50, i));
    answers.push_back(ask(prompts.back(), 120, i));
  }
  release->set_value();
  int preemptions = 0;
  for (int i = 0; i < 3; ++i) {
    const Answer answer = answers[i].get();
    EXPECT_EQ(answer.end.reason, EndReason::Length);
    EXPECT_EQ(answer.ids, alone(prompts[i], 120, i)) << "request " << i;
    preemptions += answer.end.preemptions;
  }
  EXPECT_GT(preemptions, 0) << "the cache was large enough: the test shows nothing";
}

TEST_F(BatchSchedulerTest, LookUpDraftsChangeNoAnswer) {
  SchedulerOptions scheduler;
  scheduler.drafter = make_lookup_drafter();
  scheduler.speculation = {4, false};
  EngineOptions options = batch_of(3);
  options.sequence_logits = 5;
  open(options, scheduler);
  std::vector<std::future<Answer>> answers;
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 6; ++i) {
    prompts.push_back(random_ids(30, i));
    answers.push_back(ask(prompts.back(), 100, i));
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(answers[i].get().ids, alone(prompts[i], 100, i)) << i;
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_GT(stats.drafted_tokens, 0);
  EXPECT_GT(stats.accepted_tokens, 0) << "greedy answers of a tiny model repeat themselves";
  EXPECT_LE(stats.accepted_tokens, stats.drafted_tokens);
}

// While the engine is held, no request has its place: those that will get one do not fill the
// queue.
TEST_F(BatchSchedulerTest, RefusesBeyondTheBatchAndTheQueue) {
  SchedulerOptions scheduler;
  scheduler.max_queue = 1;
  open(batch_of(2), scheduler);
  EXPECT_EQ(scheduler_->most_open(), 3);
  const auto release = hold();
  std::vector<std::future<Answer>> answers;
  for (int32_t i = 0; i < 3; ++i) answers.push_back(ask({1, i}, 2));
  const auto one_more = [&](BatchScheduler::Refused* refused) {
    GenerationRequest more;
    more.prompt = {1};
    more.max_tokens = 1;
    return scheduler_->submit(std::move(more), refused);
  };
  BatchScheduler::Refused refused;
  EXPECT_EQ(one_more(&refused), 0u);
  EXPECT_EQ(refused.why, BatchScheduler::Refusal::QueueFull);
  release->set_value();
  for (auto& answer : answers) EXPECT_EQ(answer.get().ids.size(), 2u);
  EXPECT_EQ(scheduler_->stats().refused, 1);
  ASSERT_TRUE(scheduler_->wait_idle(std::chrono::minutes(15)));
  EXPECT_NE(one_more(nullptr), 0u) << "those that have ended make room";
}

TEST_F(BatchSchedulerTest, WithoutAQueueTakesWhatFillsTheBatch) {
  SchedulerOptions scheduler;
  scheduler.max_queue = 0;
  open(batch_of(2), scheduler);
  for (int i = 0; i < 50; ++i) {
    auto a = ask({1, 2}, 2), b = ask({3, 4}, 2);
    EXPECT_EQ(a.get().ids.size(), 2u);
    EXPECT_EQ(b.get().ids.size(), 2u) << "an answered request has given its place back";
  }
}

TEST_F(BatchSchedulerTest, RefusesWhatCannotRun) {
  open(batch_of(1));
  BatchScheduler::Refused refused;
  const auto refuse = [&](std::vector<int32_t> prompt, float temperature = 0) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = temperature;
    EXPECT_EQ(scheduler_->submit(std::move(request), &refused), 0u);
    return refused.message;
  };
  EXPECT_THAT(refuse({}), HasSubstr("no tokens"));
  EXPECT_THAT(refuse({-1}), HasSubstr("token -1 is not in the vocabulary"));
  EXPECT_THAT(refuse({96}), HasSubstr("token 96"));
  EXPECT_THAT(refuse(random_ids(256, 1)), HasSubstr("256 tokens"));
  EXPECT_EQ(refused.why, BatchScheduler::Refusal::TooLong);
  EXPECT_THAT(refuse({1}, std::numeric_limits<float>::quiet_NaN()), HasSubstr("temperature"));
}

TEST_F(BatchSchedulerTest, EndsWhatIsCancelledAndNothingElse) {
  open(batch_of(2));
  const auto release = hold();
  RequestId first = 0, waiting = 0;
  auto a = ask(random_ids(20, 1), -1, 0, &first);
  auto b = ask(random_ids(20, 2), 30);
  auto c = ask(random_ids(20, 3), 5, 0, &waiting);
  scheduler_->cancel(waiting);
  scheduler_->cancel(first);
  scheduler_->cancel(12345);
  release->set_value();
  EXPECT_EQ(a.get().end.reason, EndReason::Cancelled);
  EXPECT_EQ(c.get().end.reason, EndReason::Cancelled);
  EXPECT_EQ(b.get().ids, alone(random_ids(20, 2), 30, 0));
}

TEST_F(BatchSchedulerTest, KeepsDeadlines) {
  open(batch_of(1));
  const auto release = hold();
  auto promise = std::make_shared<std::promise<RequestEnd>>();
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  request.on_end = [promise](const RequestEnd& end) { promise->set_value(end); };
  ASSERT_NE(scheduler_->submit(std::move(request)), 0u);
  release->set_value();
  EXPECT_EQ(promise->get_future().get().reason, EndReason::Deadline);
}

TEST_F(BatchSchedulerTest, FillsTheContextAndNoMore) {
  open(batch_of(1, 64));
  const Answer answer = ask(random_ids(10, 1), -1).get();
  EXPECT_EQ(answer.end.reason, EndReason::ContextFull);
  EXPECT_EQ(answer.ids.size(), 54u);
}

TEST_F(BatchSchedulerTest, StopsWhenToldTo) {
  open(batch_of(1));
  auto promise = std::make_shared<std::promise<RequestEnd>>();
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  int left = 3;
  request.on_token = [&left](const TokenEvent&) { return --left > 0; };
  request.on_end = [promise](const RequestEnd& end) { promise->set_value(end); };
  ASSERT_NE(scheduler_->submit(std::move(request)), 0u);
  const RequestEnd end = promise->get_future().get();
  EXPECT_EQ(end.reason, EndReason::Stop);
  EXPECT_EQ(end.completion_tokens, 3);
}

class OnlyEven final : public TokenFilter {
 public:
  Result<TokenBits> allowed() override { return TokenBits(bits_); }
  Status accept(int32_t id) override {
    accepted.push_back(id);
    return {};
  }
  std::vector<int32_t> accepted;

 private:
  std::vector<uint32_t> bits_ = std::vector<uint32_t>(10000, 0x55555555);
};

TEST_F(BatchSchedulerTest, AFilterDecidesWhatMayCome) {
  open(batch_of(2));
  auto promise = std::make_shared<std::promise<RequestEnd>>();
  std::vector<int32_t> ids;
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 20;
  request.logprobs = 2;
  request.filter = std::make_unique<OnlyEven>();
  request.on_token = [&](const TokenEvent& token) {
    EXPECT_EQ(token.logprobs->top.size(), 2u);
    ids.push_back(token.id);
    return true;
  };
  request.on_end = [promise](const RequestEnd& end) { promise->set_value(end); };
  ASSERT_NE(scheduler_->submit(std::move(request)), 0u);
  EXPECT_EQ(promise->get_future().get().reason, EndReason::Length);
  ASSERT_EQ(ids.size(), 20u);
  for (int32_t id : ids) EXPECT_EQ(id % 2, 0);
}

TEST_F(BatchSchedulerTest, DrainsAndShutsDown) {
  open(batch_of(2));
  auto a = ask(random_ids(20, 1), 20);
  scheduler_->drain();
  BatchScheduler::Refused refused;
  GenerationRequest late;
  late.prompt = {1};
  EXPECT_EQ(scheduler_->submit(std::move(late), &refused), 0u);
  EXPECT_EQ(refused.why, BatchScheduler::Refusal::Draining);
  EXPECT_TRUE(scheduler_->wait_idle(std::chrono::minutes(15)));
  EXPECT_EQ(a.get().end.reason, EndReason::Length);

  open(batch_of(1));
  auto release = hold();
  auto b = ask(random_ids(20, 1), -1), c = ask(random_ids(20, 1), -1);
  // Released once the scheduler is being ended, else both would be answered: it refuses then.
  std::thread later([&] {
    BatchScheduler::Refused probed;
    while (probed.why != BatchScheduler::Refusal::Draining) {
      GenerationRequest probe;
      probe.prompt = {1};
      (void)scheduler_->submit(std::move(probe), &probed);
      std::this_thread::yield();
    }
    release->set_value();
  });
  scheduler_->stop();
  later.join();
  scheduler_.reset();
  EXPECT_EQ(c.get().end.reason, EndReason::ShutDown);
  b.get();
}

TEST_F(BatchSchedulerTest, CallbacksMayShareItsOwnerWhoStopsIt) {
  open(batch_of(2));
  struct Owner {
    std::unique_ptr<BatchScheduler> scheduler;
  };
  auto owner = std::make_shared<Owner>();
  owner->scheduler = std::move(scheduler_);
  bool ended = false;
  GenerationRequest request;
  request.prompt = random_ids(20, 1);
  request.on_end = [&ended, owner](const RequestEnd&) { ended = true; };
  ASSERT_NE(owner->scheduler->submit(std::move(request)), 0u);
  owner->scheduler->stop();
  EXPECT_TRUE(ended);
  owner->scheduler->stop();  // again
  EXPECT_EQ(owner.use_count(), 1) << "nothing of the request is left";
}

TEST_F(BatchSchedulerTest, TellsWhatItsPlacesHold) {
  open(batch_of(2));
  const std::vector<int32_t> prompt = random_ids(30, 4);
  const Answer answer = ask(prompt, 5).get();
  ASSERT_EQ(scheduler_->slots().size(), 2u);
  std::vector<int32_t> text = prompt;
  text.insert(text.end(), answer.ids.begin(), answer.ids.end());
  EXPECT_EQ(scheduler_->slot_text(answer.end.slot).tokens, text);
  EXPECT_EQ(scheduler_->slot_text(answer.end.slot).answered, 5);
  EXPECT_TRUE(scheduler_->set_slot_text(1 - answer.end.slot, {{1, 2, 3}, 0, {}, {}}));
  EXPECT_EQ(scheduler_->slots()[1 - answer.end.slot].tokens, 3);
}

TEST_F(BatchSchedulerTest, AnOwnersTextsAreNobodyElses) {
  open(batch_of(2));
  const auto run = [&](const std::string& owner, const std::vector<int32_t>& prompt) {
    std::promise<RequestEnd> promise;
    GenerationRequest request;
    request.prompt = prompt;
    request.owner = owner;
    request.max_tokens = 2;
    request.on_end = [&](const RequestEnd& end) { promise.set_value(end); };
    EXPECT_NE(scheduler_->submit(std::move(request)), 0u);
    return promise.get_future().get();
  };
  const std::vector<int32_t> prompt = random_ids(150, 4);
  const RequestEnd first = run("alpha", prompt);
  EXPECT_EQ(scheduler_->slot_text(first.slot, "alpha").tokens.size(), 152u);
  for (const char* other : {"beta", ""}) {
    EXPECT_TRUE(scheduler_->slot_text(first.slot, other).tokens.empty());
    for (const SlotState& slot : scheduler_->slots(other)) EXPECT_EQ(slot.tokens, 0);
    scheduler_->call_with_slot(
        first.slot,
        [](Engine&, const SlotText& text, const Sequence*) { EXPECT_TRUE(text.tokens.empty()); },
        other);
    const RequestEnd same = run(other, prompt);
    EXPECT_EQ(same.cached_tokens, 0) << other;
    EXPECT_EQ(same.cache_miss, "nothing was cached from token 0 on") << other;
  }
  EXPECT_EQ(scheduler_->slot_text(first.slot, "alpha").tokens.size(), 152u)
      << "the place was used by others since";
  EXPECT_TRUE(scheduler_->set_slot_text(first.slot, {}, "beta"));
  EXPECT_FALSE(scheduler_->slot_text(first.slot, "alpha").tokens.empty());
  EXPECT_GE(run("alpha", prompt).cached_tokens, 64) << "as much as the small cache kept";
}

// Sampled, saved in the middle of the prompt or of the answer, and gone on with in another
// engine: the tokens are those of an uninterrupted answer.
TEST_F(BatchSchedulerTest, ASavedSlotGoesOnAsIfNeverInterrupted) {
  const std::vector<int32_t> prompt = random_ids(150, 21);
  const std::vector<int32_t> whole = alone(prompt, 60, 7);
  const testing::TempDir dir;
  for (const int64_t steps : {3, 40}) {  // of 16 tokens in the prompt, of one behind it
    // From that step on the engine waits a while behind each, so that the call comes in between
    // two of the next few however late this thread is.
    std::promise<void> there;
    std::atomic<bool> saved_now = false;
    int64_t step = 0;
    SchedulerOptions scheduler;
    scheduler.after_step = [&](Engine&) {
      if (++step == steps) there.set_value();
      for (int i = 0; step >= steps && i < 100 && !saved_now; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    EngineOptions options = batch_of(2);
    options.chunk_tokens = 16;
    open(options, scheduler);
    std::future<Answer> answer = ask(prompt, 60, 7);
    there.get_future().wait();
    SavedSession saved;
    bool running = false;
    int64_t answered = 0;
    scheduler_->call_with_slot(
        0, [&](Engine& engine, const SlotText& text, const Sequence* sequence) {
          saved_now = true;
          running = sequence != nullptr;
          if (!running) return;
          saved.tokens = text.tokens;
          saved.sampler = text.sampler;
          saved.computed = sequence->length();
          answered = text.answered;
          ASSERT_TRUE(save_session(dir.path("s"), engine, saved, *sequence).ok());
        });
    ASSERT_TRUE(running);
    EXPECT_EQ(saved.computed < 150, steps == 3);
    EXPECT_EQ(answered > 0, steps == 40);
    EXPECT_EQ(answer.get().ids, whole);

    open(options);
    SavedSession loaded;
    scheduler_->call([&](Engine& engine) {
      Sequence sequence = engine.new_sequence();
      loaded = load_session(dir.path("s"), engine, sequence).take();
      engine.cache().retire(std::move(sequence), std::span(loaded.tokens).first(loaded.computed));
    });
    GenerationRequest request;
    request.prompt = loaded.tokens;
    request.answered_tokens = answered;
    request.sampler = loaded.sampler;
    request.max_tokens = 60 - answered;
    request.sampling = sampling(7);
    std::vector<int32_t> ids(whole.begin(), whole.begin() + answered);
    std::promise<void> ended;
    int64_t cached = 0;
    request.on_token = [&](const TokenEvent& token) {
      ids.push_back(token.id);
      return true;
    };
    request.on_end = [&](const RequestEnd& end) {
      cached = end.cached_tokens;
      ended.set_value();
    };
    ASSERT_NE(scheduler_->submit(std::move(request)), 0u);
    ended.get_future().wait();
    EXPECT_EQ(ids, whole) << steps;
    EXPECT_EQ(cached, std::min(loaded.computed, static_cast<int64_t>(loaded.tokens.size()) - 1));
  }
}

// A filter that allows one token more each time, and counts who prepared it.
class Counting final : public TokenFilter {
 public:
  explicit Counting(std::atomic<int>& prepared) : prepared_(prepared) {}
  void prepare() override {
    ready_ = next_;
    ++prepared_;
  }
  Result<TokenBits> allowed() override {
    EXPECT_EQ(ready_, next_) << "not prepared";
    bits_ = 1u << next_;
    return TokenBits(&bits_, 1);
  }
  Status accept(int32_t) override {
    ++next_;
    return {};
  }

 private:
  std::atomic<int>& prepared_;
  int32_t next_ = 5, ready_ = -1;
  uint32_t bits_ = 0;
};

TEST_F(BatchSchedulerTest, FiltersArePreparedBesideTheStep) {
  SchedulerOptions scheduler;
  scheduler.filters_beside_steps = true;
  open(batch_of(4), scheduler);
  std::atomic<int> prepared = 0, right = 0;
  std::vector<std::promise<void>> ends(3);
  std::future<Answer> other = ask(random_ids(20, 1), 30);
  for (int i = 0; i < 3; ++i) {
    GenerationRequest request;
    request.prompt = random_ids(30 + i, 7);
    request.max_tokens = 12;
    request.filter = std::make_unique<Counting>(prepared);
    request.on_token = [&right, next = 5](const TokenEvent& token) mutable {
      right += token.id == next++;
      return true;
    };
    request.on_end = [&ends, i](const RequestEnd&) { ends[i].set_value(); };
    ASSERT_NE(scheduler_->submit(std::move(request)), 0u);
  }
  for (auto& end : ends) end.get_future().wait();
  other.get();
  EXPECT_EQ(right, 36);
  EXPECT_EQ(prepared, 36);
}

// A filter that throws in one of its calls.
class Throwing final : public TokenFilter {
 public:
  explicit Throwing(std::string where) : where_(std::move(where)) {}
  void prepare() override {
    if (where_ == "prepare") throw std::bad_alloc();
  }
  Result<TokenBits> allowed() override {
    if (where_ == "prepare" || where_ == "allowed") throw std::bad_alloc();
    return TokenBits(bits_);
  }
  Status accept(int32_t) override {
    if (where_ == "accept") throw std::runtime_error("thrown by the test");
    return {};
  }

 private:
  const std::string where_;
  std::vector<uint32_t> bits_ = std::vector<uint32_t>((kTinyVocab + 31) / 32, ~0u);
};

TEST_F(BatchSchedulerTest, WhatCallersThrowEndsTheirOwnRequests) {
  SchedulerOptions scheduler;
  scheduler.filters_beside_steps = true;
  open(batch_of(4), scheduler);
  const std::vector<int32_t> prompt = random_ids(30, 1);
  const std::vector<int32_t> right = alone(prompt, 40, 0);
  std::future<Answer> other = ask(prompt, 40);
  for (const std::string where :
       {"prepare", "allowed", "accept", "is_end", "on_token", "on_embedding"}) {
    std::promise<RequestEnd> promise;
    GenerationRequest request;
    request.prompt = random_ids(20, 2);
    request.max_tokens = 5;
    if (where == "prepare" || where == "allowed" || where == "accept") {
      request.filter = std::make_unique<Throwing>(where);
    }
    if (where == "is_end") request.is_end = [](int32_t) -> bool { throw 7; };
    if (where == "on_token") {
      request.on_token = [](const TokenEvent&) -> bool { throw std::bad_alloc(); };
    }
    if (where == "on_embedding") {
      request.embed = Pooling::Last;
      request.on_embedding = [](std::vector<float>) { throw std::bad_alloc(); };
    }
    request.on_end = [&](const RequestEnd& end) {
      promise.set_value(end);
      throw std::runtime_error("an end that throws");
    };
    ASSERT_NE(scheduler_->submit(std::move(request)), 0u);
    const RequestEnd end = promise.get_future().get();
    EXPECT_EQ(end.reason, EndReason::Failed) << where;
    EXPECT_THAT(end.error, ::testing::StartsWith("an error inside the server")) << where;
  }
  EXPECT_EQ(other.get().ids, right) << "nobody else noticed";
  EXPECT_THROW(scheduler_->call([](Engine&) { throw std::runtime_error("x"); }),
               std::runtime_error);
  EXPECT_EQ(ask(prompt, 40).get().ids, right);
  EXPECT_TRUE(scheduler_->wait_idle(std::chrono::minutes(15)));
}

TEST_F(BatchSchedulerTest, AStepThatThrowsEndsThoseThatRan) {
  std::atomic<int> left = 3;
  SchedulerOptions scheduler;
  scheduler.after_step = [&](Engine&) {
    if (left.fetch_sub(1) == 1) throw std::bad_alloc();
  };
  open(batch_of(2), scheduler);
  const std::vector<int32_t> prompt = random_ids(30, 1);
  const Answer failed = ask(prompt, 40).get();
  EXPECT_EQ(failed.end.reason, EndReason::Failed);
  EXPECT_THAT(failed.end.error, HasSubstr("not enough memory"));
  EXPECT_EQ(ask(prompt, 40).get().ids, alone(prompt, 40, 0));
  EXPECT_FALSE(scheduler_->slots()[failed.end.slot].busy);
}

// Its first token comes with the step behind the one that was running: on average after
// half a chunk's time and one of its own.
TEST_F(BatchSchedulerTest, AShortPromptNeedNotWaitForALongOne) {
  std::atomic<int64_t> step = 0, first_token_step = 0;
  int64_t asked_at = 0;
  std::vector<int64_t> tokens = {0};  // computed up to each step
  std::promise<void> ended;
  SchedulerOptions scheduler;
  EngineOptions options = batch_of(4, 1024);
  options.chunk_tokens = 64;
  scheduler.after_step = [&](Engine& engine) {
    tokens.push_back(engine.stats().tokens);
    if (++step != 3) return;
    asked_at = step;
    GenerationRequest request;
    request.prompt = random_ids(40, 5);
    request.max_tokens = 1;
    request.sampling = sampling(0);
    request.on_token = [&](const TokenEvent&) {
      first_token_step = step.load();
      return true;
    };
    request.on_end = [&](const RequestEnd&) { ended.set_value(); };
    EXPECT_NE(scheduler_->submit(std::move(request)), 0u);
  };
  open(options, scheduler);
  std::future<Answer> whole = ask(random_ids(900, 6), 2);
  ended.get_future().wait();
  whole.get();
  EXPECT_EQ(first_token_step, asked_at + 1);
  EXPECT_EQ(tokens[3] - tokens[2], 64) << "a whole chunk of the long one";
  EXPECT_LE(tokens[4] - tokens[3], 40 + 64 / 8) << "its own tokens and little of the long one";
  EXPECT_LE(step, 900 / 64 + 4) << "and the long one waits for no more than the short one's tokens";
}

TEST_F(BatchSchedulerTest, EmbeddingsAreThoseOfTheTextAlone) {
  const auto embed = [&](std::vector<int32_t> text, Pooling pooling) {
    auto promise = std::make_shared<std::promise<std::vector<float>>>();
    GenerationRequest request;
    request.prompt = std::move(text);
    request.embed = pooling;
    request.on_embedding = [promise](std::vector<float> vector) {
      promise->set_value(std::move(vector));
    };
    EXPECT_NE(scheduler_->submit(std::move(request)), 0u);
    return promise->get_future();
  };
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 6; ++i) texts.push_back(random_ids(1 + 17 * i, 50 + i));
  for (const Pooling pooling : {Pooling::Last, Pooling::Mean}) {
    // Row by row, in an engine of one sequence.
    EngineOptions options = batch_of(1);
    options.sequence_logits = 64;
    open(options);
    std::vector<std::vector<float>> expected;
    for (const auto& text : texts) expected.push_back(embed(text, pooling).get());
    options = batch_of(4);
    options.sequence_logits = 3;
    options.chunk_tokens = 20;
    open(options);
    std::future<Answer> answer = ask(texts[3], 40, 3);
    std::vector<std::future<std::vector<float>>> together;
    for (const auto& text : texts) together.push_back(embed(text, pooling));
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(together[i].get(), expected[i]) << i;
    EXPECT_EQ(answer.get().ids, alone(texts[3], 40, 3));
    EXPECT_EQ(embed(texts[0], Pooling::Mean).get(), embed(texts[0], Pooling::Last).get())
        << "of one token";
  }
}

}  // namespace
}  // namespace ktx::runtime
