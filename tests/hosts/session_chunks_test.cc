// Prompts of several chunks in a conversation over several hosts: chunks are in flight together,
// and every logit is that of one machine; a conversation that is stopped within them goes on.
#include <gtest/gtest.h>

#include <atomic>

#include "lib/runtime/engine/text_chunks.h"
#include "lib/runtime/session/session.h"
#include "tests/hosts/host_plans.h"
#include "tests/support/host_threads.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::Outcome;
using runtime::Session;

runtime::Sampler greedy(const Engine& engine) {
  runtime::SamplingOptions options;
  options.temperature = 0;
  return runtime::Sampler::create(options, engine.vocab_size()).take();
}

void add_logits(const Session& session, Bits& bits) {
  const auto own = std::as_bytes(session.logits());
  bits.insert(bits.end(), own.begin(), own.end());
}

// Two prompts, of 3 and 4 chunks, each with an answer.
Bits converse(Engine& engine) {
  Bits bits;
  Session session(engine, greedy(engine));
  for (const int count : {200, 261}) {
    int64_t last = 0, calls = 0;
    const auto progress = [&](int64_t done, int64_t total) {
      EXPECT_GT(done, last);
      EXPECT_EQ(total, count);
      last = done;
      ++calls;
      return true;
    };
    const auto done = session.prefill(random_text(count, count), progress);
    EXPECT_TRUE(done.ok() && *done == Outcome::Ok);
    EXPECT_EQ(calls, (count + 79) / 80);
    EXPECT_EQ(last, count);
    for (int i = 0; i < 3; ++i) {
      const auto next = session.next();
      EXPECT_TRUE(next.ok() && next->outcome == Outcome::Ok);
      add_logits(session, bits);
    }
    // The answer's last token enters with the next prompt's first chunk.
    const auto next = session.next();
    EXPECT_TRUE(next.ok());
    session.truncate(std::ssize(session.tokens()) - 1);
  }
  return bits;
}

class ChunksOfASession : public ModelOfHosts {};

TEST_P(ChunksOfASession, GiveTheBitsOfOneMachine) {
  const Plan alone(gguf_, 1);
  const Bits expected = converse(*open(alone.path(), small()));
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    const Plan plan(gguf_, count);
    HostThreads hosts(plan.path(), count);
    const auto engine = open(plan.path(), small(hosts.first()));
    ASSERT_TRUE(engine);
    EXPECT_EQ(converse(*engine), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChunksOfASession, ::testing::ValuesIn(present_models()),
                         [](const auto& info) { return std::string(info.param); });

TEST(ChunksInFlight, StopWithWholeChunks) {
  const std::string gguf = test_model_gguf("llama");
  const Plan alone(gguf, 1), plan(gguf, 2);
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), small(hosts.first())), one = open(alone.path(), small());
  ASSERT_TRUE(engine && one);
  ASSERT_TRUE(runtime::has_chunks_in_flight(*engine, 81));
  EXPECT_FALSE(runtime::has_chunks_in_flight(*engine, 80));
  EXPECT_FALSE(runtime::has_chunks_in_flight(*one, 400));
  const std::vector<int32_t> text = random_text(400, 7);
  Session session(*engine, greedy(*engine)), expected(*one, greedy(*one));
  // After the first chunk; the second one has begun.
  const auto stopped = session.prefill(text, [](int64_t, int64_t) { return false; });
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(*stopped, Outcome::Stopped);
  EXPECT_EQ(session.tokens().size(), 160u);
  EXPECT_EQ(engine->passes(), 0);
  std::atomic<bool> stop = true;
  session.watch(&stop);
  EXPECT_EQ(*session.prefill(std::span(text).subspan(160)), Outcome::Stopped);
  EXPECT_EQ(engine->passes(), 0);
  stop = false;
  const auto kept = session.tokens().size();
  ASSERT_EQ(*session.prefill(std::span(text).subspan(kept)), Outcome::Ok);
  ASSERT_EQ(*expected.prefill(text), Outcome::Ok);
  Bits a, b;
  add_logits(session, a);
  add_logits(expected, b);
  EXPECT_EQ(a, b);
  // More than the context holds is refused as ever.
  EXPECT_EQ(*session.prefill(random_text(300, 8)), Outcome::ContextFull);
}

}  // namespace
}  // namespace ktx::testing
