// States of a fixed size on GPUs (a Gpu in host memory, tests/support/host_gpu.h): whole models
// with delta nets there, with routed experts or a layer on the CPU, and over two GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>

#include "lib/plan/device_memory.h"
#include "lib/plan/state_layout.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::Outcome;
using runtime::Session;

struct Placement {
  const char* name;
  const char* rules;  // of rules/, or the text of a file
  const char* target = "targets/h200.yaml";
  int64_t nets_on_cpu = 0, nets_on_gpu = 3, nets_on_second = 0;
};
constexpr const char* kOneLayerOnTheCpu = R"(version: 1
rules:
  - id: one
    match: {name: "^model\\.layers\\.0\\."}
    replace: {device: cpu}
  - id: rest
    match: {name: "."}
    replace: {device: cuda:0}
)";
constexpr Placement kPlacements[] = {
    {"all_gpu", "all-gpu.yaml"},
    {"experts_on_cpu", "moe-experts-on-cpu.yaml"},
    {"a_layer_on_cpu", kOneLayerOnTheCpu, "targets/h200.yaml", 1, 2},
    {"two_gpus", "spread-gpus.yaml", "tests/gpu/two-h200.yaml", 0, 2, 1},
};

class GpuStates : public ::testing::TestWithParam<std::tuple<const char*, Placement>> {
 protected:
  void SetUp() override {
    const auto& [model, placement] = GetParam();
    const std::string gguf = test_model_gguf(model);
    if (gguf.empty()) GTEST_SKIP() << "no model " << model;
    const std::string rules = placement.rules;
    const std::string path = rules.ends_with(".yaml") ? source_dir() + "/rules/" + rules
                                                      : dir_.write("rules.yaml", rules);
    const Finished run =
        run_program({ktx_compile(), "-q", gguf, path,
                     "--target=" + source_dir() + "/" + placement.target, "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
  }
  std::string plan() const { return dir_.path("m.ktxplan"); }
  std::unique_ptr<Engine> open(int64_t chunk, int64_t batch = 1, int64_t kv_budget = 0) {
    EngineOptions options;
    options.threads = 2;
    options.ctx = 1024;
    options.chunk_tokens = chunk;
    options.max_batch = batch;
    options.precision = runtime::Precision::Exact;
    if (kv_budget > 0) options.kv_budget_bytes = kv_budget;
    options.open_gpu = HostGpu::opener({}, &log_);
    auto engine = Engine::open(plan(), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? engine.take() : nullptr;
  }
  static Session session(Engine& engine) {
    return Session(
        engine, runtime::Sampler::create(runtime::greedy_sampling(), engine.vocab_size()).take());
  }
  // The answer to a text that is computed in one step.
  std::vector<int32_t> expected(std::span<const int32_t> prompt, int count) {
    const auto engine = open(1024);
    Session all = session(*engine);
    EXPECT_TRUE(all.set_prompt(prompt).ok());
    return next_tokens(all, count);
  }

  const TempDir dir_;
  HostGpuLog log_;
};

TEST_P(GpuStates, GiveTheReferencesTokensInChunksOfAnySizeAndInBatches) {
  const nlohmann::json cases = reference_cases(test_model_dir(std::get<0>(GetParam())));
  Comparison result;
  for (int64_t chunk : {1, 7, 64, 512}) {
    const auto engine = open(512);
    ASSERT_TRUE(engine);
    compare_case(*engine, cases[0], chunk, result);
  }
  const auto engine = open(512, 3);
  ASSERT_TRUE(engine);
  compare_together(*engine, nlohmann::json(cases.begin(), cases.begin() + 3), result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_LE(result.mean(), 0.002);
  EXPECT_GT(log_.graph_launches, 0);
}

// 3 inputs of 512 channels and 4 matrices of 64 x 64 for each delta net, in each of 6 slots.
TEST_P(GpuStates, TakeMemoryOnTheDevicesOfTheirLayers) {
  const Placement& placement = std::get<1>(GetParam());
  const auto engine = open(64);
  ASSERT_TRUE(engine);
  constexpr uint64_t kNet = (3 * 512 + 4 * 64 * 64) * sizeof(float);
  const auto slots = static_cast<uint64_t>(engine->cache().state().states_total);
  EXPECT_EQ(slots, plan::kRunningStates + plan::kSnapshots);
  const auto of = [&](std::string_view device) {
    return plan::state_layout(engine->plan(), device).bytes();
  };
  EXPECT_EQ(of("cpu"), placement.nets_on_cpu * kNet);
  EXPECT_EQ(of("cuda:0"), placement.nets_on_gpu * kNet);
  EXPECT_EQ(of("cuda:1"), placement.nets_on_second * kNet);
  EXPECT_EQ(engine->memory().state_bytes, slots * of("cpu"));
  plan::RunShape shape{.ctx = 1024};
  shape.state_bytes = plan::state_layout(engine->plan()).bytes();
  const auto devices = plan::memory_by_device(engine->plan(), shape);
  ASSERT_TRUE(devices.ok());
  for (const plan::DeviceMemory& device : *devices) {
    EXPECT_EQ(device.state_bytes, slots * of(device.name)) << device.name;
  }
}

TEST_P(GpuStates, TextsGoOnAlikeHoweverTheyWereCutAndTakenBack) {
  const std::vector<int32_t> prompt = random_text(600, 1);
  const std::vector<int32_t> answer = expected(prompt, 20);
  for (int64_t chunk : {7, 64}) {
    const auto engine = open(chunk);
    Session s = session(*engine);
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_EQ(next_tokens(s, 20), answer) << "chunks of " << chunk;
    const int64_t computed = engine->stats().tokens;
    ASSERT_TRUE(s.set_prompt(prompt).ok());
    EXPECT_LE(engine->stats().tokens - computed, 1) << "from the states behind the prompt";
    EXPECT_EQ(next_tokens(s, 20), answer);
    std::vector<int32_t> other(prompt.begin(), prompt.begin() + 530);
    const int64_t before = engine->stats().tokens;
    ASSERT_TRUE(s.set_prompt(other).ok());
    EXPECT_LE(engine->stats().tokens - before, 530 - 512) << "from the snapshot of 512 tokens";
    EXPECT_EQ(next_tokens(s, 10), expected(other, 10));
  }
}

TEST_P(GpuStates, SessionsSavedWithinThePromptAndBehindItGoOnAlike) {
  const std::vector<int32_t> prompt = random_text(200, 6);
  const std::vector<int32_t> answer = expected(prompt, 20);
  const std::string path = dir_.path("s.session");
  for (const bool within : {true, false}) {
    {
      const auto engine = open(64);
      Session s = session(*engine);
      ASSERT_TRUE(
          s.set_prompt(prompt, [&](int64_t done, int64_t) { return !within || done < 128; }).ok());
      if (!within) {
        EXPECT_EQ(next_tokens(s, 5), std::vector<int32_t>(answer.begin(), answer.begin() + 5));
      }
      ASSERT_TRUE(s.save(path, "").ok());
    }
    const auto engine = open(64);
    Session s = session(*engine);
    ASSERT_TRUE(s.load(path).ok());
    if (within) {
      ASSERT_TRUE(s.set_prompt(prompt).ok());
    }
    const int first = within ? 0 : 5;
    EXPECT_EQ(next_tokens(s, 20 - first),
              std::vector<int32_t>(answer.begin() + first, answer.end()));
    EXPECT_LE(engine->stats().tokens, within ? 200 - 128 + 20 : 16) << "the file has the states";
  }
}

// More requests than places, in a cache for two of them.
TEST_P(GpuStates, RequestsAnswerAsIfAlone) {
  std::vector<std::vector<int32_t>> prompts, answers;
  for (uint64_t i = 0; i < 4; ++i) {
    prompts.push_back(random_text(60 + 25 * static_cast<int64_t>(i), 70 + i));
    answers.push_back(expected(prompts.back(), 20));
  }
  const auto whole = static_cast<int64_t>(plan::state_layout(open(64)->plan()).bytes());
  const auto engine = open(64, 3, 3 * 2 * whole + (int64_t{1} << 20));
  ASSERT_TRUE(engine);
  runtime::BatchScheduler scheduler(*engine, runtime::SchedulerOptions{});
  std::vector<std::promise<void>> done(prompts.size());
  std::vector<std::vector<int32_t>> found(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    runtime::GenerationRequest request;
    request.prompt = prompts[i];
    request.sampling = runtime::greedy_sampling();
    request.max_tokens = 20;
    request.on_token = [&found, i](const runtime::TokenEvent& token) {
      found[i].push_back(token.id);
      return true;
    };
    request.on_end = [&done, i](const runtime::RequestEnd&) { done[i].set_value(); };
    ASSERT_NE(scheduler.submit(std::move(request)), 0);
  }
  for (auto& one : done) one.get_future().wait();
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(found[i], answers[i]) << "request " << i;
}

INSTANTIATE_TEST_SUITE_P(Models, GpuStates,
                         ::testing::Combine(::testing::ValuesIn(kDeltaNetModels),
                                            ::testing::ValuesIn(kPlacements)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace ktx::testing
