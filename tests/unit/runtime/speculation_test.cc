// Answers with draft tokens are those without, whatever drafts: sessions and the batch scheduler.
#include "lib/runtime/draft/speculation.h"

#include <gtest/gtest.h>

#include <future>

#include "lib/runtime/draft/lookup_drafter.h"
#include "lib/runtime/draft/plan_drafter.h"
#include "lib/runtime/draft/scripted_drafter.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/temp_dir.h"
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

// Options of every kind: greedy, sampled, with penalties, XTC and mirostat.
SamplingOptions some_sampling(uint64_t seed) {
  SamplingOptions options;
  options.seed = seed;
  options.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
  if (seed % 3 == 0) options.repetition_penalty = 1.3f;
  if (seed % 5 == 1) options.xtc_probability = 0.3f;
  if (seed % 7 == 5) options.mirostat = true;
  return options;
}

// Fails when it is asked for the third time.
class FailingDrafter : public Drafter {
 public:
  std::string_view name() const override { return "failing"; }
  std::unique_ptr<DraftText> begin(const std::string&, const SamplingOptions&) override {
    return std::make_unique<DraftText>();
  }
  Status draft(std::span<DraftItem> items) override {
    if (++calls_ == 3) return Error{"the small model is gone"};
    for (DraftItem& item : items) item.draft_tokens.assign(static_cast<size_t>(item.most), 1);
    return {};
  }

 private:
  int calls_ = 0;
};

class SpeculationTest : public ::testing::Test {
 protected:
  EngineOptions options(int64_t sequences = 1) const {
    EngineOptions options;
    options.threads = 2;
    options.ctx = 256;
    options.max_batch = sequences;
    options.sequence_logits = 5;
    return options;
  }
  std::unique_ptr<Engine> open(const TinyPlan& plan, int64_t sequences = 1) const {
    auto engine = Engine::open(plan.path(), options(sequences));
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.take();
  }
  std::unique_ptr<Drafter> draft_plan(const TinyPlan& plan, int64_t sequences = 1,
                                      std::shared_ptr<ThreadPool> pool = {}) const {
    EngineOptions small = options(sequences);
    small.pool = std::move(pool);
    auto drafter = make_plan_drafter(Engine::open(plan.path(), small).take(), {}, kTinyVocab);
    EXPECT_TRUE(drafter.ok()) << drafter.error().message;
    return drafter.take();
  }
  std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int count, uint64_t seed) {
    if (!plain_) plain_ = open(plan_);
    Session session(*plain_, Sampler::create(some_sampling(seed), kTinyVocab).take());
    EXPECT_EQ(session.set_prompt(prompt).take(), Outcome::Ok);
    return generate(session, count);
  }
  // Answers of sessions with these draft tokens; the share of right ones.
  double expect_same_answers(Drafter& drafter, bool adaptive = false) {
    const auto engine = open(plan_);
    Speculation speculation(drafter, {4, adaptive});
    int64_t drafted = 0, accepted = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<int32_t> prompt = some_ids(5 + static_cast<int>(seed) * 9, seed);
      Session session(*engine, Sampler::create(some_sampling(seed), kTinyVocab).take());
      session.speculate(&speculation);
      EXPECT_EQ(session.set_prompt(prompt).take(), Outcome::Ok);
      EXPECT_EQ(generate(session, 60), alone(prompt, 60, seed)) << "seed " << seed;
      EXPECT_EQ(session.stats().decode_tokens, 59);
      drafted += session.stats().drafted_tokens;
      accepted += session.stats().accepted_tokens;
    }
    EXPECT_GT(drafted, 0);
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
  }

  TinyPlan plan_, other_{DType::Q4_0};
  std::unique_ptr<Engine> plain_;
};

TEST_F(SpeculationTest, TheModelItselfDraftsRight) {
  const auto drafter = draft_plan(plan_);
  EXPECT_GT(expect_same_answers(*drafter), 0.999) << "it draws with the same random numbers";
}

TEST_F(SpeculationTest, AnotherModelIsWrongAndChangesNothing) {
  const auto drafter = draft_plan(other_);
  EXPECT_LT(expect_same_answers(*drafter), 0.9);
}

TEST_F(SpeculationTest, AnAdaptiveLengthChangesNothing) {
  const auto good = draft_plan(plan_), bad = draft_plan(other_);
  expect_same_answers(*good, true);
  expect_same_answers(*bad, true);
}

TEST_F(SpeculationTest, LookUpChangesNothing) {
  const auto drafter = make_lookup_drafter();
  expect_same_answers(*drafter);
}

TEST_F(SpeculationTest, ADrafterThatFailsIsDoneWithout) {
  FailingDrafter drafter;
  expect_same_answers(drafter);
}

TEST_F(SpeculationTest, AScriptIsRightAsOftenAsItSays) {
  const std::vector<int32_t> prompt = some_ids(10, 1);
  std::vector<int32_t> text = prompt;
  const std::vector<int32_t> answer = alone(prompt, 200, 0);
  text.insert(text.end(), answer.begin(), answer.end());
  for (const double acceptance : {0.0, 0.5, 1.0}) {
    ScriptedDrafter drafter({.acceptance = acceptance, .vocab_size = kTinyVocab});
    drafter.set_answers({text});
    const auto engine = open(plan_);
    Speculation speculation(drafter, {1, false});
    Session session(*engine, Sampler::create(some_sampling(0), kTinyVocab).take());
    session.speculate(&speculation);
    ASSERT_EQ(session.set_prompt(prompt).take(), Outcome::Ok);
    EXPECT_EQ(generate(session, 200), answer);
    const SessionStats& stats = session.stats();
    EXPECT_NEAR(static_cast<double>(stats.accepted_tokens),
                acceptance * static_cast<double>(stats.drafted_tokens), 30)
        << acceptance;
  }
}

// A session that is cut, continued, changed, saved and loaded between draft tokens that are not
// used up.
TEST_F(SpeculationTest, SessionsGoOnFromAnywhere) {
  const auto drafter = draft_plan(plan_);
  const auto engine = open(plan_), plain = open(plan_);
  Speculation speculation(*drafter, {4, false});
  const ktx::testing::TempDir dir;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Session drafts(*engine, Sampler::create(some_sampling(seed), kTinyVocab).take());
    drafts.speculate(&speculation);
    Session session(*plain, Sampler::create(some_sampling(seed), kTinyVocab).take());
    const auto both = [&](const auto& what) {
      const auto one = what(drafts);
      EXPECT_EQ(one, what(session)) << "seed " << seed;
    };
    const std::vector<int32_t> prompt = some_ids(20, seed), more = some_ids(3, seed + 50);
    std::vector<int32_t> edited(prompt.begin(), prompt.begin() + 9);
    edited.insert(edited.end(), more.begin(), more.end());
    both([&](Session& s) { return s.set_prompt(prompt).take(); });
    for (int count = 1; count < 9; ++count) {
      both([&](Session& s) { return generate(s, count); });
      both([&](Session& s) { return s.prefill(more).take(); });
    }
    both([&](Session& s) { return generate(s, 7); });
    both([&](Session& s) {
      s.truncate(static_cast<int64_t>(s.tokens().size()) - 3);
      return s.prefill(more).take();
    });
    both([&](Session& s) { return generate(s, 6); });
    both([&](Session& s) { return s.set_prompt(edited).take(); });
    both([&](Session& s) { return generate(s, 6); });
    both([&](Session& s) {
      EXPECT_TRUE(s.save(dir.path("s")).ok());
      return generate(s, 5);
    });
    both([&](Session& s) {
      EXPECT_TRUE(s.load(dir.path("s")).ok());
      return generate(s, 5);
    });
    both([&](Session& s) {
      s.keep_logits(false);
      return generate(s, 300);  // to the end of the context
    });
    both([&](Session& s) { return s.next().take().outcome; });
  }
}

TEST_F(SpeculationTest, LogitsAreThoseOfTheLastToken) {
  const auto drafter = draft_plan(plan_);
  const auto engine = open(plan_), plain = open(plan_);
  Speculation speculation(*drafter, {4, false});
  Session drafts(*engine, Sampler::create(greedy_sampling(), kTinyVocab).take());
  drafts.speculate(&speculation);
  Session session(*plain, Sampler::create(greedy_sampling(), kTinyVocab).take());
  const std::vector<int32_t> prompt = some_ids(20, 3);
  ASSERT_EQ(drafts.set_prompt(prompt).take(), Outcome::Ok);
  ASSERT_EQ(session.set_prompt(prompt).take(), Outcome::Ok);
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(drafts.next().take().id, session.next().take().id);
    ASSERT_TRUE(std::equal(drafts.logits().begin(), drafts.logits().end(), session.logits().begin(),
                           session.logits().end()))
        << i;
  }
}

TEST_F(SpeculationTest, TwoSessionsOfOneEngineDoNotMixTheirRows) {
  const auto drafter = draft_plan(plan_, 2);
  const auto engine = open(plan_, 2);
  Speculation speculation(*drafter, {4, false});
  std::vector<Session> sessions;
  std::vector<std::vector<int32_t>> prompts, answers(2);
  for (uint64_t i = 0; i < 2; ++i) {
    sessions.emplace_back(*engine, Sampler::create(some_sampling(i), kTinyVocab).take());
    sessions.back().speculate(&speculation);
    prompts.push_back(some_ids(20, i));
    ASSERT_EQ(sessions.back().set_prompt(prompts.back()).take(), Outcome::Ok);
  }
  for (int i = 0; i < 40; ++i) {
    for (size_t s = 0; s < 2; ++s) answers[s].push_back(sessions[s].next().take().id);
  }
  for (size_t s = 0; s < 2; ++s) EXPECT_EQ(answers[s], alone(prompts[s], 40, s));
}

// Ids stand for others: the drafter's tokens are the model's in reverse order, and one of three is
// unknown to the model.
TEST_F(SpeculationTest, TokensOfAnotherVocabularyAreMapped) {
  DraftVocabulary vocabulary;
  for (int32_t id = 0; id < kTinyVocab; ++id) {
    const auto there = static_cast<int32_t>(kTinyVocab - 1 - id);
    vocabulary.to_draft.push_back(id % 5 == 0   ? std::vector<int32_t>{there, there}
                                  : id % 5 == 1 ? std::vector<int32_t>{}
                                                : std::vector<int32_t>{there});
    vocabulary.from_draft.push_back(id % 3 == 0 ? -1 : there);
  }
  auto drafter = make_plan_drafter(open(other_), vocabulary, kTinyVocab).take();
  expect_same_answers(*drafter);
}

// Only even tokens, and no token twice in a row.
class EvenFilter : public TokenFilter {
 public:
  Result<TokenBits> allowed() override {
    bits_.assign(kTinyVocab / 32, 0x55555555u);
    if (last_ >= 0) bits_[static_cast<size_t>(last_) / 32] &= ~(1u << last_ % 32);
    return TokenBits(bits_);
  }
  Status accept(int32_t id) override {
    if (id % 2 != 0 || id == last_) return Error{"not allowed"};
    last_ = id;
    return {};
  }

 private:
  std::vector<uint32_t> bits_;
  int32_t last_ = -1;
};

struct Request {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 40;
  uint64_t seed = 0;
  bool filter = false;
  int logprobs = -1;
  int64_t max_draft_tokens = kMaxDraftTokens;
  bool operator==(const Request&) const = default;
};
struct Answered {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
  RequestEnd end;
};

class SpeculatingSchedulerTest : public SpeculationTest {
 protected:
  // All at once, with these draft tokens.
  std::vector<Answered> ask(std::span<const Request> requests, std::shared_ptr<Drafter> drafter,
                            bool adaptive, const EngineOptions& engine_options) {
    auto engine = Engine::open(plan_.path(), engine_options).take();
    SchedulerOptions scheduling;
    scheduling.drafter = std::move(drafter);
    scheduling.speculation = {4, adaptive};
    BatchScheduler scheduler(*engine, scheduling);
    std::vector<std::future<Answered>> futures;
    std::promise<void> release;
    std::promise<void> entered;
    std::thread holder([&] {
      scheduler.call([&](Engine&) {
        entered.set_value();
        release.get_future().wait();
      });
    });
    entered.get_future().wait();
    for (const Request& request : requests) {
      auto promise = std::make_shared<std::promise<Answered>>();
      auto answer = std::make_shared<Answered>();
      GenerationRequest asked;
      asked.prompt = request.prompt;
      asked.max_tokens = request.max_tokens;
      asked.sampling = some_sampling(request.seed);
      asked.logprobs = request.logprobs;
      asked.max_draft_tokens = request.max_draft_tokens;
      if (request.filter) asked.filter = std::make_unique<EvenFilter>();
      asked.on_token = [answer](const TokenEvent& token) {
        answer->ids.push_back(token.id);
        if (token.logprobs) {
          answer->logprobs.push_back(token.logprobs->logprob);
          for (const TokenLogprob& top : token.logprobs->top) {
            answer->logprobs.push_back(top.logprob);
          }
        }
        return token.id != 13;  // a stop of the caller's
      };
      asked.on_end = [answer, promise](const RequestEnd& end) {
        answer->end = end;
        promise->set_value(*answer);
      };
      futures.push_back(promise->get_future());
      EXPECT_NE(scheduler.submit(std::move(asked)), 0u);
    }
    release.set_value();
    holder.join();
    std::vector<Answered> answers;
    for (auto& future : futures) answers.push_back(future.get());
    EXPECT_TRUE(scheduler.wait_idle(std::chrono::minutes(15)));
    scheduler.call([](Engine&) {});  // behind the round that publishes
    stats_ = scheduler.stats();
    return answers;
  }
  static std::vector<Request> many() {
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 16; ++i) {
      Request request;
      request.prompt = some_ids(1 + static_cast<int>(i) * 6, i % 4);  // some begin alike
      request.max_tokens = 20 + static_cast<int64_t>(i) * 3;
      request.seed = i;
      request.filter = i % 4 == 3;
      request.logprobs = i % 3 == 1 ? 3 : -1;
      request.max_draft_tokens = i == 6 ? 0 : kMaxDraftTokens;
      requests.push_back(std::move(request));
    }
    return requests;
  }
  void expect_same(std::span<const Answered> some, std::span<const Answered> others) {
    ASSERT_EQ(some.size(), others.size());
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i].ids, others[i].ids) << "request " << i;
      EXPECT_EQ(some[i].logprobs, others[i].logprobs) << "request " << i;
      EXPECT_EQ(some[i].end.reason, others[i].end.reason) << "request " << i;
      EXPECT_EQ(some[i].end.error, others[i].end.error) << "request " << i;
      EXPECT_EQ(some[i].end.completion_tokens, others[i].end.completion_tokens);
      EXPECT_LE(some[i].end.accepted_tokens, some[i].end.drafted_tokens);
    }
  }

  SchedulerStats stats_;
};

TEST_F(SpeculatingSchedulerTest, DraftsChangeNoAnswerOfABatch) {
  const std::vector<Request> requests = many();
  const auto plain = ask(requests, nullptr, true, options(4));
  EXPECT_EQ(stats_.drafted_tokens, 0);
  for (const TinyPlan* plan : {&plan_, &other_}) {
    for (const bool adaptive : {false, true}) {
      const auto answers = ask(requests, draft_plan(*plan, 4), adaptive, options(4));
      expect_same(answers, plain);
      EXPECT_EQ(answers[6].end.drafted_tokens, 0) << "the request wants no draft tokens";
      if (adaptive) continue;
      EXPECT_GT(stats_.drafted_tokens, 0);
      EXPECT_GT(stats_.draft_seconds, 0);
      for (size_t i = 0; i < requests.size() && plan == &plan_; ++i) {
        const RequestEnd& end = answers[i].end;
        if (requests[i].filter) continue;  // which the drafter does not know
        EXPECT_GE(end.accepted_tokens + 4, end.drafted_tokens) << "all but the last, request " << i;
      }
    }
  }
}

TEST_F(SpeculatingSchedulerTest, ADrafterWithOnePlaceHelpsAsFarAsItCan) {
  const std::vector<Request> requests = many();
  const auto plain = ask(requests, nullptr, true, options(4));
  expect_same(ask(requests, draft_plan(plan_, 1), false, options(4)), plain);
  EXPECT_GT(stats_.accepted_tokens, 0);
}

TEST_F(SpeculatingSchedulerTest, PreemptionsAndDraftsChangeNothing) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 5; ++i) {
    requests.push_back({some_ids(50, i), 120, i});
  }
  EngineOptions small = options(3);
  const auto plain = ask(requests, nullptr, true, small);
  auto probe = Engine::open(plan_.path(), small).take();
  // Four blocks for requests that need three each in the end.
  small.kv_budget_bytes =
      static_cast<int64_t>(probe->memory().kv_bytes / probe->memory().kv_blocks.whole * 4);
  for (const TinyPlan* plan : {&plan_, &other_}) {
    expect_same(ask(requests, draft_plan(*plan, 3), false, small), plain);
    EXPECT_GT(stats_.preemptions, 0);
  }
}

TEST_F(SpeculatingSchedulerTest, AFailureOfTheDrafterEndsNoAnswer) {
  const std::vector<Request> requests = many();
  const auto plain = ask(requests, nullptr, true, options(4));
  EXPECT_EQ(stats_.draft_failed, 0);
  expect_same(ask(requests, std::make_shared<FailingDrafter>(), false, options(4)), plain);
  EXPECT_EQ(stats_.draft_failed, 1);
}

// The engine has room for two rows of logits a sequence: one draft token.
TEST_F(SpeculatingSchedulerTest, DraftsAsManyAsThereAreRowsFor) {
  std::vector<Request> requests = many();
  const auto plain = ask(requests, nullptr, true, options(4));
  EngineOptions narrow = options(4);
  narrow.sequence_logits = 2;
  expect_same(ask(requests, draft_plan(plan_, 4), false, narrow), plain);
  EXPECT_GT(stats_.drafted_tokens, 0);
  narrow.sequence_logits = 1;
  expect_same(ask(requests, draft_plan(plan_, 4), false, narrow), plain);
  EXPECT_EQ(stats_.drafted_tokens, 0);
}

}  // namespace
}  // namespace ktx::runtime
