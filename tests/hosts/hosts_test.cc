// Models over several hosts, as threads of this process: every logit is that of one machine, bit by
// bit, in chunks, decode and batches, with texts that share a beginning, saved sessions and passes
// that are stopped; and what a run says when a host is not what it should be.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/session/session_file.h"
#include "tests/hosts/host_plans.h"
#include "tests/hosts/host_talk.h"
#include "tests/support/host_threads.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::Engine;
using runtime::EngineOptions;
using runtime::Forward;
using runtime::Sequence;
using runtime::Want;
using ::testing::HasSubstr;

class Hosts : public ModelOfHosts {
 protected:
  EngineOptions all_logits(std::shared_ptr<runtime::HostGroup> hosts = nullptr) const {
    EngineOptions options = small(std::move(hosts));
    options.all_logits = true;
    return options;
  }
};

TEST_P(Hosts, GiveTheBitsOfOneMachine) {
  const Plan alone(gguf_, 1);
  const Bits expected = talk(*open(alone.path(), all_logits()));
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    const Plan plan(gguf_, count);
    EXPECT_GE(plan.used().size(), 2u);
    HostThreads hosts(plan.path(), count);
    {
      const auto engine = open(plan.path(), all_logits(hosts.first()));
      ASSERT_TRUE(engine);
      EXPECT_EQ(talk(*engine), expected);
    }
    hosts.end();
    for (int rank = 1; rank < count; ++rank) EXPECT_EQ(hosts.end_of(rank), "");
  }
}

// To and fro, and all that is in no layer far away.
TEST_P(Hosts, GiveThemWhereverRulesPutLayers) {
  const Plan alone(gguf_, 1);
  const Bits expected = talk(*open(alone.path(), all_logits()));
  const Plan plan(gguf_, 2,
                  "  - match: {layers: [0, 2]}\n    replace: {device: b/cpu}\n"
                  "  - match: {kind: head}\n    replace: {device: b/cpu}\n"
                  "  - match: {kind: embedding}\n    replace: {device: b/cpu}\n"
                  "  - match: {name: \".\"}\n    replace: {device: a/cpu}\n");
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), all_logits(hosts.first()));
  ASSERT_TRUE(engine);
  EXPECT_EQ(talk(*engine), expected);
}

// A layer on two hosts: routed experts elsewhere are a sum of their own, which is added to the
// stream as a whole, and so in another order.
TEST_P(Hosts, AgreeWithOneMachineWhereLayersAreCut) {
  EngineOptions options = all_logits();
  options.precision = runtime::Precision::Exact;
  const Plan alone(gguf_, 1);
  const Bits expected = talk(*open(alone.path(), options));
  const Plan plan(gguf_, 2,
                  "  - match: {kind: mlp}\n    replace: {device: b/cpu}\n    recursive: false\n"
                  "    optional: true\n"
                  "  - match: {kind: experts}\n    replace: {device: b/cpu}\n    recursive: false\n"
                  "    optional: true\n"
                  "  - match: {name: \".\"}\n    replace: {device: cpu}\n");
  HostThreads hosts(plan.path(), 2);
  options.hosts = hosts.first();
  const auto engine = open(plan.path(), options);
  options.hosts.reset();
  ASSERT_TRUE(engine);
  const Bits found = talk(*engine);
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  for (size_t at = 0; at < found.size(); at += sizeof(float)) {
    float a = 0, b = 0;
    std::memcpy(&a, found.data() + at, sizeof a);
    std::memcpy(&b, expected.data() + at, sizeof b);
    worst = std::max(worst, static_cast<double>(std::abs(a - b)));
  }
  EXPECT_LT(worst, 1e-3);
}

TEST_P(Hosts, SaveAndRestoreATextOfAllHosts) {
  const Plan plan(gguf_, 2);
  TempDir dir;
  const std::vector<int32_t> prompt = random_text(150, 3);
  const auto go_on = [](Engine& engine, Sequence& sequence, int32_t id) {
    Bits bits;
    for (int i = 0; i < 4; ++i) {
      if (!compute(engine, {{&sequence, {&id, 1}, Want::Last}}, bits)) break;
      id = best_id(engine, 0);
    }
    return bits;
  };
  Bits expected;
  int32_t next = 0;
  {
    HostThreads hosts(plan.path(), 2);
    const auto engine = open(plan.path(), small(hosts.first()));
    ASSERT_TRUE(engine);
    Sequence sequence = engine->new_sequence();
    Bits bits;
    const auto all = std::span<const int32_t>(prompt);
    ASSERT_TRUE(compute(*engine, {{&sequence, all.first(80), Want::None}}, bits));
    ASSERT_TRUE(compute(*engine, {{&sequence, all.subspan(80), Want::Last}}, bits));
    next = best_id(*engine, 0);
    runtime::SavedSession session;
    session.tokens = prompt;
    const Status saved = runtime::save_session(dir.path("s"), *engine, session, sequence);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    expected = go_on(*engine, sequence, next);
  }
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), small(hosts.first()));
  ASSERT_TRUE(engine);
  Sequence sequence = engine->new_sequence();
  const auto loaded = runtime::load_session(dir.path("s"), *engine, sequence);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(sequence.length(), 150);
  EXPECT_EQ(go_on(*engine, sequence, next), expected);
}

TEST_P(Hosts, GoOnAfterAPassThatWasStopped) {
  const Plan plan(gguf_, 2);
  HostThreads hosts(plan.path(), 2);
  const auto engine = open(plan.path(), all_logits(hosts.first()));
  ASSERT_TRUE(engine);
  const Bits expected = talk(*engine);
  stop_prompts(*engine, 3, 0.2);
  if (HasFatalFailure()) return;
  EXPECT_EQ(talk(*engine), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, Hosts, ::testing::ValuesIn(present_models()),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(StateSpaces, Hosts, ::testing::Values("granitehybrid"),
                         [](const auto& info) { return std::string(info.param); });

std::string llama() {
  return test_model_gguf("llama");
}

TEST(HostRuns, EachHostReadsItsOwnWeightsAlone) {
  const Plan plan(llama(), 2);
  uint64_t all = 0, sum = 0;
  for (const size_t host : {0, 1}) {
    const auto file = plan::PlanFile::open(plan.path(), {.host = host});
    ASSERT_TRUE(file.ok()) << file.error().message;
    for (const plan::SegmentRecord& segment : (*file)->segments) {
      if (segment.kind != static_cast<uint32_t>(plan::SegmentKind::Weights)) continue;
      if ((*file)->string(segment.device) == "cpu") sum += segment.size;
      if (host == 0) all += segment.size;
    }
  }
  EXPECT_EQ(sum, all);
  const auto none = plan::PlanFile::open(plan.path(), {.host = 2});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("the plan is for 2 hosts, and this is number 3"));
}

TEST(HostRuns, ActivationsOfExpertsAreThoseOfAllHosts) {
  const std::string gguf = test_model_gguf("qwen3moe");
  const Plan alone(gguf, 1), plan(gguf, 2);
  const auto count = [](const std::string& path, std::shared_ptr<runtime::HostGroup> group) {
    EngineOptions options = small(std::move(group));
    options.all_logits = options.count_experts = true;
    const auto engine = open(path, options);
    talk(*engine);
    EXPECT_EQ(engine->stats().expert_use.gpu, 0);
    EXPECT_GT(engine->stats().weight_bytes, 0);
    engine->runner().enable_times(true);
    talk(*engine);
    EXPECT_GT(engine->runner().step_times().size(), 10u);
    return std::pair(engine->stats().expert_use.cpu,
                     plan::to_json(*engine->runner().expert_profile()));
  };
  HostThreads hosts(plan.path(), 2);
  EXPECT_EQ(count(plan.path(), hosts.first()), count(alone.path(), nullptr));
}

TEST(HostRules, ADeviceThatNoHostHasIsAMistake) {
  TempDir dir;
  const std::string target = "--target=" + dir.write("hosts.yaml", target_of(2));
  const auto check = [&](const std::string& device) {
    const std::string rules =
        "version: 1\nrules:\n  - match: {layers: 0}\n    replace: {device: " + device + "}\n";
    return run_program({ktx_compile(), "--check", dir.write("r.yaml", rules), llama(), target});
  };
  EXPECT_EQ(check("a/cpu").status, 0);
  EXPECT_EQ(check("b/cpu").status, 0);
  const Finished unknown = check("c/cpu");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err + unknown.out,
              HasSubstr("device c/cpu does not exist: the hosts of the target are a, b"));
  const Finished gpu = check("b/cuda:0");
  EXPECT_EQ(gpu.status, 1);
  EXPECT_THAT(gpu.err + gpu.out, HasSubstr("host b has no GPU in the target"));
  const Finished spelling = check("b/gpu");
  EXPECT_THAT(spelling.err + spelling.out, HasSubstr("did you mean 'b/cuda"));
}

TEST(HostRules, ReportsShowHostsAndTheNetwork) {
  TempDir dir;
  const std::string target = "--target=" + dir.write("hosts.yaml", target_of(2));
  const Finished estimate = run_program({ktx_compile(), "--check", "--estimate", llama(), target});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_THAT(estimate.out, HasSubstr("\nb/cpu "));
  const Finished explained = run_program(
      {ktx_compile(), "--check", "--explain", "model.layers.2.self_attn", llama(), target});
  EXPECT_THAT(explained.out, HasSubstr("b/cpu"));
  const Plan plan(llama(), 2);
  const Finished tables = run_program({ktx_run(), "inspect", plan.path()});
  EXPECT_THAT(tables.out, HasSubstr("\nhosts, for "));
  const Finished json = run_program({ktx_run(), "inspect", plan.path(), "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"first_layer\""));
}

TEST(HostRuns, ThePlanSaysHowToStartIt) {
  const Plan plan(llama(), 2);
  const auto engine = Engine::open(plan.path(), small());
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(
      engine.error().message,
      HasSubstr("the plan is for 2 hosts (a, b), and 1 process was started; write mpirun -n 2"));
  HostThreads hosts(plan.path(), 3);
  EXPECT_THAT(Engine::open(plan.path(), small(hosts.first())).error().message,
              HasSubstr("3 processes were started"));
}

// The caches of 64 sequences take most of the memory: with less of it on the second host the
// context falls, and with next to none nothing fits.
TEST(HostRuns, TheLargestContextFitsAllHosts) {
  const Plan plan(llama(), 2);
  const plan::PlanFile file = plan::PlanFile::open(plan.path()).take();
  EngineOptions options = small();
  options.ctx.reset();
  options.max_batch = 64;
  runtime::RunRoom room{uint64_t{1} << 40, {}};
  int64_t before = file->facts.context_length;
  for (const uint64_t mib : {100000, 560, 530}) {
    room.others["b/cpu"] = mib << 20;
    const int64_t found = runtime::largest_ctx(file.view(), options, room)->ctx;
    EXPECT_LE(found, before);
    EXPECT_EQ(found == before, mib == 100000) << found << " tokens with " << mib << " MiB";
    before = found;
  }

  options.largest_ctx = true;
  for (const uint64_t reserved : {uint64_t{0}, UINT64_MAX}) {
    HostThreads hosts({plan.path()}, 2, {}, reserved);
    options.hosts = hosts.first();
    const auto engine = Engine::open(plan.path(), options);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_THAT((*engine)->notes(),
                ::testing::Contains(HasSubstr(reserved > 0 ? "no context fits" : "made for")));
    options.hosts.reset();
  }
}

TEST(HostRuns, AnotherPlanOnOneHostIsNamed) {
  const Plan plan(llama(), 2);
  const Plan other(llama(), 2, "  - match: {name: \".\"}\n    replace: {device: b/cpu}\n");
  HostThreads hosts({plan.path(), other.path()}, 2);
  const auto engine = Engine::open(plan.path(), small(hosts.first()));
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("host b (rank 1): "));
  EXPECT_THAT(engine.error().message, HasSubstr("copy the same file to all hosts"));
  // The run is in order: the next engine may be opened.
  hosts.end();
  EXPECT_EQ(hosts.end_of(1), "");
}

TEST(HostRuns, APlanThatIsNotThereIsNamed) {
  const Plan plan(llama(), 2);
  HostThreads hosts({plan.path(), "/nowhere.ktxplan"}, 2);
  const auto engine = Engine::open(plan.path(), small(hosts.first()));
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("host b (rank 1): /nowhere.ktxplan"));
}

TEST(HostRuns, AHostThatIsGoneIsNamedAndEndsTheRun) {
  const Plan plan(llama(), 4);
  for (const int lost : {1, 2, 3}) {
    SCOPED_TRACE(lost);
    runtime::HostTimes times;
    times.sign_of_life = 0.05;
    times.silence = 1.5;
    HostThreads hosts({plan.path()}, 4, times);
    auto engine = open(plan.path(), small(hosts.first()));
    ASSERT_TRUE(engine);
    Bits bits;
    Sequence sequence = engine->new_sequence();
    const std::vector<int32_t> prompt = random_text(20, 5);
    ASSERT_TRUE(compute(*engine, {{&sequence, prompt, Want::Last}}, bits));
    hosts.cut(lost);
    std::string error;
    for (int i = 0; i < 1000 && error.empty(); ++i) {
      const int32_t id = 7;
      const BatchItem item{&sequence, {&id, 1}, Want::Last};
      const auto done = engine->forward({&item, 1});
      if (!done) error = done.error().message;
    }
    EXPECT_THAT(error,
                HasSubstr(fmt::format("host b{} (rank {}) has given no sign of life", lost, lost)));
    { Sequence gone = std::move(sequence); }
    engine.reset();
    hosts.end();
    for (int rank = 1; rank < 4; ++rank) EXPECT_NE(hosts.end_of(rank), "") << rank;
  }
}

}  // namespace
}  // namespace ktx::testing
