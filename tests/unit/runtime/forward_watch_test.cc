// A pass that is cancelled in the middle leaves nothing behind.
#include "lib/runtime/engine/forward_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/runtime/session/session.h"
#include "tests/unit/runtime/generate.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

using ::testing::ElementsAreArray;

class ForwardWatchTest : public ::testing::Test {
 protected:
  void open(int threads) {
    EngineOptions options;
    options.threads = threads;
    options.chunk_tokens = 16;
    auto engine = Engine::open(plan_.path(), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine.take();
  }
  Session session() {
    return Session(*engine_, Sampler::create(greedy_sampling(), kTinyVocab).take());
  }
  static std::vector<int32_t> prompt(int64_t count, int32_t step) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>((i * step + 3) % kTinyVocab));
    return ids;
  }

  TinyPlan plan_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(ForwardWatchTest, AnEndedPromptLeavesNoBitBehind) {
  for (const int threads : {1, 3}) {
    ASSERT_NO_FATAL_FAILURE(open(threads));
    const std::vector<int32_t> first = prompt(50, 7), second = prompt(45, 11);
    Session plain = session();
    ASSERT_EQ(plain.set_prompt(second).take(), Outcome::Ok);
    const std::vector<float> expected(plain.logits().begin(), plain.logits().end());
    const std::vector<int32_t> answer = generate(plain, 8);
    // Ended at every place where it can be seen, one after the other.
    int ends = 0;
    for (int place = 0;; ++place) {
      Session s = session();
      std::atomic<bool> stop = false;
      int seen = 0, seen_after = 0;
      s.watch(&stop, [&](double, int64_t) {
        seen_after += stop;
        if (seen++ == place) stop = true;
      });
      const int64_t free = engine_->cache().state().free;
      const Outcome outcome = s.set_prompt(first).take();
      if (outcome == Outcome::Ok) break;  // there is no such place
      ++ends;
      ASSERT_EQ(outcome, Outcome::Stopped);
      EXPECT_EQ(seen_after, 0) << "it goes on behind place " << place;
      EXPECT_EQ(s.tokens().size() % 16, 0u) << "whole chunks stay";
      EXPECT_LT(s.tokens().size(), first.size());
      EXPECT_GE(engine_->cache().state().free, free - 1);
      stop = false;
      s.watch(&stop);
      ASSERT_EQ(s.set_prompt(second).take(), Outcome::Ok);
      EXPECT_THAT(std::vector<float>(s.logits().begin(), s.logits().end()),
                  ElementsAreArray(expected));
      EXPECT_EQ(generate(s, 8), answer);
    }
    EXPECT_GT(ends, 8) << "several places in each of four chunks";
  }
}

TEST_F(ForwardWatchTest, AnEndedTokenIsComputedAtTheNextCall) {
  ASSERT_NO_FATAL_FAILURE(open(2));
  const std::vector<int32_t> ids = prompt(20, 7);
  Session plain = session();
  ASSERT_EQ(plain.set_prompt(ids).take(), Outcome::Ok);
  const std::vector<int32_t> answer = generate(plain, 8);
  Session s = session();
  ASSERT_EQ(s.set_prompt(ids).take(), Outcome::Ok);
  std::vector<int32_t> got = generate(s, 3);
  std::atomic<bool> stop = true;
  s.watch(&stop);
  EXPECT_EQ(s.next().take().outcome, Outcome::Stopped);
  EXPECT_EQ(s.next().take().outcome, Outcome::Stopped);
  EXPECT_EQ(s.tokens().size(), 23u);
  stop = false;
  for (const int32_t id : generate(s, 5)) got.push_back(id);
  EXPECT_EQ(got, answer);
}

TEST_F(ForwardWatchTest, ProgressRisesToTheWholePrompt) {
  ASSERT_NO_FATAL_FAILURE(open(2));
  Session s = session();
  std::vector<double> done;
  s.watch(nullptr, [&](double tokens, int64_t total) {
    EXPECT_EQ(total, 50);
    done.push_back(tokens);
  });
  ASSERT_EQ(s.set_prompt(prompt(50, 7)).take(), Outcome::Ok);
  ASSERT_GT(done.size(), 8u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.front(), 0);
  EXPECT_GT(done.back(), 48);
  EXPECT_LT(done.back(), 50);
}

}  // namespace
}  // namespace ktx::runtime
