#include "lib/runtime/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/generate.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

using ::testing::ElementsAreArray;

class SessionTest : public ::testing::Test {
 protected:
  Session session(EngineOptions options = {}) {
    auto engine = Engine::open(plan_.path(), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine.take();
    return Session(*engine_, Sampler::create(greedy_sampling(), kTinyVocab).take());
  }

  TinyPlan plan_;
  std::unique_ptr<Engine> engine_;
  const std::vector<int32_t> prompt_ = {5, 17, 80, 3, 3, 44, 9, 61, 2, 30};
};

TEST_F(SessionTest, ContinuesAPrompt) {
  Session s = session();
  ASSERT_EQ(s.set_prompt(prompt_).take(), Outcome::Ok);
  const std::vector<int32_t> ids = generate(s, 20);
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_EQ(s.tokens().size(), 30u);
  EXPECT_EQ(s.stats().prompt_tokens, 10);
  EXPECT_EQ(s.stats().decode_tokens, 19) << "the last token waits";
  EXPECT_GT(s.stats().bytes_per_token(), 0);

  // The same tokens, computed as one prompt, lead to the same next one.
  Session other(*engine_, Sampler::create(greedy_sampling(), kTinyVocab).take());
  std::vector<int32_t> whole = prompt_;
  whole.insert(whole.end(), ids.begin(), ids.end() - 1);
  ASSERT_EQ(other.set_prompt(whole).take(), Outcome::Ok);
  EXPECT_EQ(other.next().take().id, ids.back());
  EXPECT_THAT(std::vector<float>(s.logits().begin(), s.logits().end()),
              ElementsAreArray(other.logits()));
}

TEST_F(SessionTest, KeepsTheCommonBeginning) {
  Session s = session();
  ASSERT_EQ(s.set_prompt(prompt_).take(), Outcome::Ok);
  const std::vector<int32_t> first = generate(s, 5);
  std::vector<int32_t> edited(prompt_.begin(), prompt_.begin() + 6);
  edited.push_back(7);
  ASSERT_EQ(s.set_prompt(edited).take(), Outcome::Ok);
  EXPECT_EQ(s.stats().reused_tokens, 6);
  const std::vector<int32_t> second = generate(s, 5);

  Session fresh(*engine_, Sampler::create(greedy_sampling(), kTinyVocab).take());
  ASSERT_EQ(fresh.set_prompt(edited).take(), Outcome::Ok);
  EXPECT_EQ(generate(fresh, 5), second);
  // Back to the first prompt, which the cache has only in part now.
  ASSERT_EQ(s.set_prompt(prompt_).take(), Outcome::Ok);
  EXPECT_EQ(generate(s, 5), first);
  // The same prompt again computes its last token only.
  s.reset_stats();
  ASSERT_EQ(s.set_prompt(prompt_).take(), Outcome::Ok);
  EXPECT_EQ(s.stats().prompt_tokens, 1);
  EXPECT_EQ(generate(s, 5), first);
}

TEST_F(SessionTest, EndsWhenTheContextIsFull) {
  EngineOptions options;
  options.ctx = 16;
  Session s = session(options);
  ASSERT_EQ(s.set_prompt(prompt_).take(), Outcome::Ok);
  EXPECT_EQ(generate(s, 100).size(), 6u);
  EXPECT_EQ(s.next().take().outcome, Outcome::ContextFull);
  EXPECT_EQ(s.tokens().size(), 16u);
  EXPECT_EQ(s.prefill(prompt_).take(), Outcome::ContextFull);
  EXPECT_EQ(s.tokens().size(), 16u);
  const std::vector<int32_t> long_prompt(17, 1);
  EXPECT_EQ(s.set_prompt(long_prompt).take(), Outcome::ContextFull);
  s.truncate(0);
  EXPECT_EQ(s.set_prompt(std::vector<int32_t>(16, 1)).take(), Outcome::Ok);
  EXPECT_EQ(s.next().take().outcome, Outcome::ContextFull);
}

TEST_F(SessionTest, StopsBetweenChunks) {
  EngineOptions options;
  options.chunk_tokens = 4;
  Session s = session(options);
  int calls = 0;
  const auto stop = [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, 4 * (calls + 1));
    EXPECT_EQ(total, 10);
    return ++calls < 2;
  };
  EXPECT_EQ(s.set_prompt(prompt_, stop).take(), Outcome::Stopped);
  EXPECT_EQ(s.tokens().size(), 8u);
  EXPECT_FALSE(s.next().ok()) << "nothing to sample from";
  EXPECT_EQ(s.set_prompt(prompt_).take(), Outcome::Ok);
  EXPECT_TRUE(s.next().ok());
}

TEST_F(SessionTest, RefusesToContinueNothing) {
  Session s = session();
  EXPECT_FALSE(s.next().ok());
  EXPECT_FALSE(s.set_prompt({}).ok());
}

TEST_F(SessionTest, GivesBlocksBack) {
  EngineOptions options;
  options.ctx = 128;
  for (int i = 0; i < 3; ++i) {
    Session s = session(options);
    ASSERT_EQ(s.set_prompt(std::vector<int32_t>(128, 1)).take(), Outcome::Ok);
    Session moved = std::move(s);
    Session second(*engine_, Sampler::create(greedy_sampling(), kTinyVocab).take());
    EXPECT_EQ(second.set_prompt(prompt_).take(), Outcome::CacheFull);
    moved.truncate(0);
    EXPECT_EQ(second.set_prompt(prompt_).take(), Outcome::Ok);
  }
}

}  // namespace
}  // namespace ktx::runtime
