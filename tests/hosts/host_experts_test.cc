// Routed experts of a layer on several hosts, as threads of this process: every logit is that of
// one machine, bit by bit, in chunks, decode and batches, wherever the layer itself is.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "lib/runtime/engine/forward_watch.h"
#include "tests/hosts/host_plans.h"
#include "tests/hosts/host_talk.h"
#include "tests/support/host_threads.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::Engine;
using runtime::Forward;
using runtime::Sequence;
using runtime::Want;

constexpr const char* kModels[] = {"mixtral",    "qwen2moe",    "qwen3moe",   "deepseek2",
                                   "deepseek3",  "gpt_oss",     "qwen3_next", "gemma4_moe",
                                   "granitemoe", "glm_moe_dsa", "kimi_linear"};

class DividedExperts : public ModelOfHosts {
 protected:
  void expect_the_bits(int count, const std::string& rules) {
    SCOPED_TRACE(rules);
    const Plan alone(gguf_, 1), plan(gguf_, count, rules);
    ASSERT_EQ(plan.used().size(), static_cast<size_t>(count));
    for (const auto precision : {runtime::Precision::Fast, runtime::Precision::Exact}) {
      runtime::EngineOptions options = small();
      options.precision = precision;
      options.all_logits = true;
      const Bits expected = talk(*open(alone.path(), options));
      HostThreads hosts(plan.path(), count);
      options.hosts = hosts.first();
      {
        const auto engine = open(plan.path(), options);
        options.hosts.reset();
        ASSERT_TRUE(engine);
        EXPECT_EQ(talk(*engine), expected);
      }
      hosts.end();
      for (int rank = 1; rank < count; ++rank) EXPECT_EQ(hosts.end_of(rank), "");
    }
  }
};

// The layers are on the first host, some of their experts on the second.
TEST_P(DividedExperts, GiveTheBitsOfOneMachine) {
  expect_the_bits(2,
                  "  - match: {kind: experts}\n"
                  "    replace: {device: a/cpu, experts: {b/cpu: \"1, 4\"}}\n"
                  "    recursive: false\n"
                  "  - match: {name: \".\"}\n    replace: {device: a/cpu}\n");
}

// The layers are spread, and of the experts of each some are on all hosts; the layer's own host may
// have the least of them.
TEST_P(DividedExperts, GiveThemOverFourHostsThatShareTheLayers) {
  expect_the_bits(4,
                  "  - match: {kind: experts}\n"
                  "    replace: {device: b2/cpu, experts: {a/cpu: \"0, 5\", b1/cpu: \"3\", "
                  "b3/cpu: 1}}\n"
                  "    recursive: false\n");
}

// None is where the layer is.
TEST_P(DividedExperts, GiveThemWhereTheLayersHostHasNone) {
  expect_the_bits(3,
                  "  - match: {kind: experts}\n"
                  "    replace: {device: b1/cpu, experts: {b2/cpu: 3}}\n"
                  "    recursive: false\n"
                  "  - match: {name: \".\"}\n    replace: {device: a/cpu}\n");
}

const char* const kOverThree =
    "  - match: {kind: experts}\n"
    "    replace: {device: a/cpu, experts: {b1/cpu: 2, b2/cpu: 2}}\n"
    "    recursive: false\n";

// A pass that ends within a layer leaves messages behind, which the next one must not take.
TEST_P(DividedExperts, GoOnAfterAPassThatWasStopped) {
  const Plan plan(gguf_, 3, kOverThree);
  HostThreads hosts(plan.path(), 3);
  runtime::EngineOptions options = small(hosts.first());
  options.all_logits = true;
  const auto engine = open(plan.path(), options);
  options.hosts.reset();
  ASSERT_TRUE(engine);
  const Bits expected = talk(*engine);
  stop_prompts(*engine, 6, 0.15);
  if (HasFatalFailure()) return;
  EXPECT_EQ(talk(*engine), expected);
}

std::vector<const char*> models_with_experts() {
  std::vector<const char*> models;
  for (const char* model : kModels) {
    if (!test_model_gguf(model).empty()) models.push_back(model);
  }
  return models;
}

INSTANTIATE_TEST_SUITE_P(Models, DividedExperts, ::testing::ValuesIn(models_with_experts()),
                         [](const auto& info) { return std::string(info.param); });

// Also one that has nothing but experts.
TEST(ExpertsOverHosts, AHostThatIsGoneIsNamed) {
  const Plan plan(test_model_gguf("qwen3moe"), 3, kOverThree);
  for (const int lost : {1, 2}) {
    runtime::HostTimes times;
    times.sign_of_life = 0.05;
    times.silence = 1.5;
    HostThreads hosts({plan.path()}, 3, times);
    auto engine = open(plan.path(), small(hosts.first()));
    ASSERT_TRUE(engine);
    Bits bits;
    auto sequence = std::make_unique<Sequence>(engine->new_sequence());
    const std::vector<int32_t> prompt = random_text(20, 5);
    ASSERT_TRUE(compute(*engine, {{&*sequence, prompt, Want::Last}}, bits));
    hosts.cut(lost);
    std::string error;
    for (int i = 0; i < 1000 && error.empty(); ++i) {
      const int32_t id = 7;
      const BatchItem item{&*sequence, {&id, 1}, Want::Last};
      const auto done = engine->forward({&item, 1});
      if (!done) error = done.error().message;
    }
    EXPECT_THAT(error, ::testing::HasSubstr(fmt::format(
                           "host b{} (rank {}) has given no sign of life", lost, lost)));
    sequence.reset();
    engine.reset();
  }
}

// Two hosts that read slowly, with this network.
std::string slow_hosts(const std::string& network) {
  const std::string cpu = "cpu: {isa: avx2, cores: 4, memory_gib: 64, bandwidth_gbps: 0.05}";
  return fmt::format("network: {{{}}}\nhosts:\n  - {{name: a, {}}}\n  - {{name: b, {}}}\n", network,
                     cpu, cpu);
}

TEST(ExpertsWithoutRules, AreDividedWhereThatIsPredictedToBeFaster) {
  const std::string gguf = test_model_gguf("qwen3moe");
  const TempDir dir;
  const std::string fast = dir.write("fast.yaml", slow_hosts("gbit: 400, latency_us: 1"));
  const std::string slow = dir.write("slow.yaml", slow_hosts("gbit: 0.01, latency_us: 5000"));
  const auto estimate = [&](const std::string& target) {
    return run_program({ktx_compile(), "--check", gguf, "--target=" + target, "--estimate"}).out;
  };
  EXPECT_THAT(estimate(fast),
              ::testing::HasSubstr("divided: the experts of 3 layers are on 2 hosts\n"));
  EXPECT_THAT(estimate(fast), ::testing::Not(::testing::HasSubstr("passes in flight")));
  EXPECT_THAT(estimate(slow), ::testing::Not(::testing::HasSubstr("divided")));
  EXPECT_THAT(estimate(slow), ::testing::HasSubstr("2 passes in flight: "));
  const std::string path = dir.path("m.ktxplan");
  const Finished run = run_program({ktx_compile(), "-q", gguf, "-o", path, "--target=" + fast});
  ASSERT_EQ(run.status, 0) << run.err;
  const Bits expected = talk(*open(Plan(gguf, 1).path(), small()));
  HostThreads hosts(path, 2);
  const auto engine = open(path, small(hosts.first()));
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->most_forwards(), 1);
  EXPECT_EQ(talk(*engine), expected);
}

}  // namespace
}  // namespace ktx::testing
