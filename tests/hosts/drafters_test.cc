// Drafters of models over several hosts, which run on the first one: the hidden states that they
// read come from whichever host has the layer, bit by bit those of one machine, and answers stay
// the same.
#include <gtest/gtest.h>

#include "lib/runtime/draft/prediction_drafter.h"
#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/session/session.h"
#include "tests/hosts/host_plans.h"
#include "tests/support/draft_head_gguf.h"
#include "tests/support/host_threads.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::Engine;

// The hidden states of a prompt that is computed in two passes.
Bits states_of(Engine& engine) {
  Bits bits;
  const std::vector<int32_t> text = random_text(90, 1);
  runtime::Sequence sequence = engine.new_sequence();
  for (const size_t at : {size_t{0}, size_t{60}}) {
    const auto tokens = std::span(text).subspan(at, at == 0 ? 60 : 30);
    const runtime::BatchItem item{&sequence, tokens, runtime::Want::Last};
    EXPECT_TRUE(engine.forward({&item, 1}).ok());
    const auto rows = engine.hidden_of_tokens(0, std::ssize(tokens));
    if (!rows) {
      ADD_FAILURE() << rows.error().message;
      return bits;
    }
    const auto own = std::as_bytes(*rows);
    bits.insert(bits.end(), own.begin(), own.end());
  }
  return bits;
}

std::vector<int32_t> answer(Engine& engine, runtime::Speculation* speculation) {
  runtime::Session session(
      engine, runtime::Sampler::create(runtime::greedy_sampling(), engine.vocab_size()).take());
  session.keep_logits(false);
  session.speculate(speculation);
  EXPECT_TRUE(session.set_prompt(random_text(40, 2)).ok());
  return next_tokens(session, 30);
}

TEST(DraftersOfHosts, ReadTheStatesOfOneMachineAndChangeNoAnswer) {
  const std::string gguf = test_model_gguf("llama");
  if (gguf.empty()) GTEST_SKIP() << "no model llama";
  const TempDir dir;
  const auto model = input::GgufFile::open(gguf);
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_TRUE(write_draft_head(*model, dir.path("head.gguf"), {.every = 5}).ok());
  const std::vector<std::string> draft = {"--draft", dir.path("head.gguf")};
  runtime::EngineOptions options = small();
  options.sequence_logits = 5;
  const Plan alone(gguf, 1, "", draft);
  const auto one = open(alone.path(), options);
  ASSERT_TRUE(one);
  const Bits states = states_of(*one);
  const std::vector<int32_t> expected = answer(*one, nullptr);
  for (const int count : {2, 3}) {
    SCOPED_TRACE(count);
    const Plan plan(gguf, count, "", draft);
    EXPECT_EQ(plan.used().size(), static_cast<size_t>(count));
    HostThreads hosts(plan.path(), count);
    options.hosts = hosts.first();
    const auto engine = open(plan.path(), options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(states_of(*engine), states);
    runtime::EngineOptions of_drafter = small(hosts.first());
    of_drafter.drafter = true;
    auto predictor = runtime::make_prediction_drafter(open(plan.path(), of_drafter), *engine);
    ASSERT_TRUE(predictor.ok()) << predictor.error().message;
    runtime::Speculation speculation(**predictor, {4, false});
    EXPECT_EQ(answer(*engine, &speculation), expected);
    EXPECT_EQ(speculation.failure(), "");
    options.hosts.reset();
  }
}

}  // namespace
}  // namespace ktx::testing
