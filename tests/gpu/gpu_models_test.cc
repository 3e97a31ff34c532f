// The test models on a real GPU, whole and with experts on the CPU, against their references.
// Skipped where no GPU can be opened; tools/dev/check-gpu runs it. Models of ../shared are left
// out where they are missing.
//
// Plans are compiled by ktx-compile, or taken from $KTX_GPU_PLANS/MODEL-PLACEMENT.ktxplan
// where only the test program can be carried to the machine with the GPU; the models'
// references are read from $KTX_GPU_MODELS then.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>

#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/experts/expert_guests.h"
#include "lib/runtime/gpu/gpu.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::Precision;

struct Placement {
  const char* name;
  const char* rules;  // from rules/
  const char* target = "targets/h200.yaml";
  const char* prefer = nullptr;
};
constexpr Placement kMlaExpanded = {"mla-expanded", "all-gpu.yaml", "targets/h200.yaml",
                                    "--prefer=mla=expanded"};
constexpr Placement kAlone = {"alone", "all-gpu.yaml", "targets/h200.yaml",
                              "--prefer=fused=no,cublas=no"};
constexpr Placement kAllGpu = {"all-gpu", "all-gpu.yaml"};
constexpr Placement kStreamed = {"streamed", "moe-experts-on-cpu.yaml", "targets/h200.yaml",
                                 "--prefer=stream-experts=4"};
constexpr Placement kJoint = {"joint", "moe-experts-on-cpu.yaml", "targets/h200.yaml",
                              "--prefer=stream-experts=4,joint-experts=64"};
constexpr Placement kExpertsOnCpu = {"experts-on-cpu", "moe-experts-on-cpu.yaml"};
constexpr Placement kHalf = {"half", "../tests/gpu/half-of-the-experts.yaml"};
constexpr Placement kSplit = {"split", "../tests/gpu/split-experts.yaml", "targets/h200.yaml",
                              "--prefer=stream-experts=no"};
constexpr Placement kSplitStreamed = {"split-streamed", "../tests/gpu/split-experts.yaml",
                                      "targets/h200.yaml", "--prefer=stream-experts=4"};
constexpr Placement kSlots = {"slots", "../tests/gpu/expert-slots.yaml", "targets/h200.yaml",
                              "--prefer=stream-experts=no"};
constexpr Placement kSlotsStreamed = {"slots-streamed", "../tests/gpu/expert-slots.yaml",
                                      "targets/h200.yaml", "--prefer=stream-experts=4"};
constexpr const char* kTwoH200 = "tests/gpu/two-h200.yaml";
constexpr Placement kTwoGpus = {"two-gpus", "spread-gpus.yaml", kTwoH200};
constexpr Placement kTogether = {"together", "split-gpus.yaml", kTwoH200};
constexpr Placement kFourTogether = {"four-together", "split-gpus.yaml",
                                     "tests/gpu/four-h200.yaml"};
constexpr Placement kTwoGpusExpertsOnCpu = {"two-gpus-experts-on-cpu",
                                            "spread-gpus-experts-on-cpu.yaml", kTwoH200};
std::string folder(const char* variable, const std::string& otherwise) {
  const char* given = std::getenv(variable);
  return given ? given : otherwise;
}

class GpuModels : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = runtime::open_gpu(0);
    if (!gpu) GTEST_SKIP() << gpu.error().message;
  }

  std::unique_ptr<Engine> open(const std::string& model, const Placement& placement,
                               EngineOptions options = {}) {
    auto engine = Engine::open(plan(model, placement), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine ? engine.take() : nullptr;
  }
  static nlohmann::json cases(const std::string& model) {
    return reference_cases(model_dir(model));
  }
  // "" where the model is missing.
  static std::string model_dir(const std::string& model) {
    const std::string carried = folder("KTX_GPU_MODELS", "");
    if (carried.empty()) return test_model_dir(model);
    const std::string dir = carried + "/" + model;
    return std::filesystem::exists(dir) ? dir : "";
  }

  // All cases one by one, prompts in chunks of `chunk`.
  Comparison one_by_one(const Placement& placement, EngineOptions options, int64_t chunk,
                        size_t most = SIZE_MAX) {
    Comparison all;
    for (const char* model : models_) {
      const auto engine = open(model, placement, options);
      if (!engine) continue;
      Comparison here;
      size_t count = 0;
      for (const nlohmann::json& reference : cases(model)) {
        if (count++ == most) break;
        const double before = here.worst;
        compare_case(*engine, reference, chunk, here);
        if (here.worst > std::max(before, 0.05)) {
          std::cout << model << ", case " << count << ": " << here.worst << " off\n";
        }
      }
      std::cout << model << ": " << summary(here) << "\n";
      all.cases += here.cases;
      all.equal += here.equal;
      all.sum += here.sum;
      all.count += here.count;
      all.worst = std::max(all.worst, here.worst);
    }
    std::cout << placement.name << ", chunks of " << chunk << ": " << summary(all) << "\n";
    return all;
  }

  // All cases of each model at once.
  Comparison together(const Placement& placement) {
    EngineOptions options;
    options.max_batch = 6;
    Comparison all;
    for (const char* model : models_) {
      const auto engine = open(model, placement, options);
      if (engine) compare_together(*engine, cases(model), all);
    }
    std::cout << placement.name << ", batches of 6: " << summary(all) << "\n";
    return all;
  }

  // With exact experts on the CPU.
  Comparison exact(const Placement& placement) {
    EngineOptions options;
    options.precision = Precision::Exact;
    return one_by_one(placement, options, 64);
  }

  static std::string summary(const Comparison& c) {
    std::ostringstream text;
    text << c.equal << " of " << c.cases << ", mean " << c.mean() << ", worst " << c.worst;
    return text.str();
  }

  // What is asked of products in half precision, over all cases.
  static void expect_near(const Comparison& all) {
    EXPECT_EQ(all.cases, 51);
    EXPECT_GE(all.equal, 49);
    EXPECT_LE(all.mean(), 0.01);
  }

 private:
  std::string plan(const std::string& model, const Placement& placement) {
    const std::string carried = folder("KTX_GPU_PLANS", "");
    const std::string name = model + "-" + placement.name + ".ktxplan";
    if (!carried.empty()) return carried + "/" + name;
    const std::string path = std::string(source_dir() + "/rules/") + placement.rules;
    std::vector<std::string> command = {
        ktx_compile(),
        "-q",
        test_model_gguf(model),
        path,
        std::string("--target=" + source_dir() + "/") + placement.target,
        "-o",
        dir_.path(name)};
    if (placement.prefer) command.emplace_back(placement.prefer);
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    return dir_.path(name);
  }
  TempDir dir_;

 protected:
  std::vector<const char*> models_{std::begin(kTestModels), std::end(kTestModels)};
};

TEST_F(GpuModels, WholeOnTheGpuGiveTheReferencesTokens) {
  expect_near(one_by_one(kAllGpu, {}, 64));
}

TEST_F(GpuModels, InChunksOfAnySize) {
  for (const Placement& placement : {kAllGpu, kMlaExpanded, kAlone}) {
    for (int64_t chunk : {1, 7, 512}) {
      const Comparison all = one_by_one(placement, {}, chunk, 2);
      EXPECT_EQ(all.cases, 16);
      EXPECT_GE(all.equal, 15) << placement.name << " " << chunk;
      EXPECT_LE(all.mean(), 0.01) << placement.name << " " << chunk;
    }
  }
}

TEST_F(GpuModels, WithoutGraphsToo) {
  EngineOptions options;
  options.gpu_graphs = false;
  const Comparison all = one_by_one(kAllGpu, options, 64, 2);
  EXPECT_GE(all.equal, 15);
  EXPECT_LE(all.mean(), 0.01);
}

TEST_F(GpuModels, InBatches) {
  expect_near(together(kAllGpu));
}

TEST_F(GpuModels, WithAllRoutedExpertsOnTheCpu) {
  expect_near(exact(kExpertsOnCpu));
  EXPECT_LE(one_by_one(kExpertsOnCpu, {}, 64).mean(), 0.03);
}

// Prompts whose experts come over PCIe, by passes of seven tokens and of 64.
TEST_F(GpuModels, StreamedExpertsGiveTheReferencesTokens) {
  expect_near(exact(kStreamed));
  EXPECT_LE(one_by_one(kStreamed, {}, 64).mean(), 0.03);
}

// The CPU computes half of the experts of a chunk of 64, and more of shorter ones.
TEST_F(GpuModels, StreamedExpertsSharedWithTheCpuGiveTheReferencesTokens) {
  expect_near(exact(kJoint));
  EXPECT_LE(one_by_one(kJoint, {}, 64).mean(), 0.03);
}

TEST_F(GpuModels, WithHalfOfTheLayersExpertsOnTheCpu) {
  expect_near(exact(kHalf));
  EXPECT_LE(one_by_one(kHalf, {}, 64).mean(), 0.03);
}

// Four experts of each layer on the GPU, beside those of the CPU.
TEST_F(GpuModels, WithExpertsOfEachLayerSplit) {
  expect_near(exact(kSplit));
  EXPECT_LE(one_by_one(kSplit, {}, 64).mean(), 0.03);
  expect_near(exact(kSplitStreamed));
  const Comparison all = together(kSplit);
  EXPECT_EQ(all.cases, 51);
  EXPECT_LE(all.mean(), 0.03);
}

// Slots of a GPU for experts of the CPU: as they follow use, and with others in every pass.
TEST_F(GpuModels, WithSlotsForExpertsThatFollowUse) {
  constexpr runtime::ExpertGuestOptions kRestless{.least_gain = -1e9};
  for (const Placement& placement : {kSlots, kSlotsStreamed}) {
    for (const bool restless : {false, true}) {
      EngineOptions options;
      options.precision = Precision::Exact;
      if (restless) options.expert_guests = &kRestless;
      expect_near(one_by_one(placement, options, 64));
    }
  }
  const Comparison all = together(kSlots);
  EXPECT_EQ(all.cases, 51);
  EXPECT_LE(all.mean(), 0.03);
}

// Experts come by copies beside the queue, none of which fails, and are used where they are then.
TEST_F(GpuModels, ExpertsComeToSlotsAndStay) {
  constexpr runtime::ExpertGuestOptions kRestless{.least_gain = -1e9};
  EngineOptions options;
  options.expert_guests = &kRestless;
  const auto restless = open("qwen3moe", kSlots, options);
  const auto engine = open("qwen3moe", kSlots);
  ASSERT_TRUE(restless && engine);
  const std::vector<int32_t> ids = {40};
  for (int i = 0; i < 200; ++i) {
    for (const auto& one : {restless.get(), engine.get()}) {
      runtime::Sequence sequence = one->new_sequence();
      const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
      ASSERT_TRUE(one->forward({&item, 1}).ok());
    }
  }
  const runtime::ExpertGuestUse changing = restless->stats().expert_guests;
  const runtime::ExpertGuestUse staying = engine->stats().expert_guests;
  std::cout << changing.moves << " experts moved, and " << staying.moves << " by use\n";
  EXPECT_GT(changing.moves, 200);
  EXPECT_EQ(changing.failures + staying.failures, 0);
  EXPECT_LE(staying.moves, 12);
  EXPECT_GT(10 * staying.hits, 8 * staying.activations);
}

// What a GPU counts is what the CPU counts, but for choices between experts whose scores are alike.
TEST_F(GpuModels, ActivationsAreCountedByExpert) {
  EngineOptions options;
  options.precision = Precision::Exact;
  options.count_experts = true;
  for (const Placement& placement : {kAllGpu, kSplit, kSplitStreamed}) {
    std::vector<uint64_t> counts;
    for (const Placement& one : {kExpertsOnCpu, placement}) {
      const auto engine = open("qwen3moe", one, options);
      ASSERT_TRUE(engine);
      Comparison result;
      compare_case(*engine, cases("qwen3moe")[0], 64, result);
      const auto profile = engine->runner().expert_profile();
      ASSERT_TRUE(profile) << profile.error().message;
      EXPECT_EQ(static_cast<int64_t>(profile->activations()), engine->stats().expert_use.total());
      std::vector<uint64_t> found;
      for (const auto& [layer, of] : profile->layers) {
        found.insert(found.end(), of.begin(), of.end());
      }
      if (counts.empty()) {
        counts = found;
        continue;
      }
      ASSERT_EQ(found.size(), counts.size());
      uint64_t others = 0, all = 0;
      for (size_t i = 0; i < counts.size(); ++i) {
        others += counts[i] > found[i] ? counts[i] - found[i] : found[i] - counts[i];
        all += counts[i];
      }
      EXPECT_LE(50 * others, all) << placement.name;
    }
  }
}

TEST_F(GpuModels, KvCacheInQ8StaysNear) {
  EngineOptions options;
  options.kv_type = plan::KvType::Q8_0;
  const Comparison all = one_by_one(kAllGpu, options, 64, 2);
  EXPECT_LE(all.mean(), 0.03);
}

// Windows, sinks, two rotary bases, gated units with limits, biases of experts.
class GpuWindowModels : public GpuModels {
 protected:
  GpuWindowModels() { models_ = {"gemma3", "gpt_oss"}; }
  static constexpr int kCases = 15;
  static void expect_near(const Comparison& all, double mean) {
    EXPECT_EQ(all.cases, kCases);
    EXPECT_GE(all.equal, kCases - 1);
    EXPECT_LE(all.mean(), mean);
  }
};

TEST_F(GpuWindowModels, WholeOnTheGpuGiveTheReferencesTokens) {
  for (const Placement& placement : {kAllGpu, kAlone}) {
    for (int64_t chunk : {1, 7, 64, 512}) expect_near(one_by_one(placement, {}, chunk), 0.01);
  }
}

TEST_F(GpuWindowModels, InBatches) {
  expect_near(together(kAllGpu), 0.01);
}

TEST_F(GpuWindowModels, WithExpertsOnTheCpu) {
  for (const Placement& placement : {kExpertsOnCpu, kHalf}) {
    expect_near(exact(placement), 0.01);
    expect_near(one_by_one(placement, {}, 64), 0.033);
  }
}

TEST_F(GpuWindowModels, KvCacheInQ8StaysNear) {
  EngineOptions options;
  options.kv_type = plan::KvType::Q8_0;
  EXPECT_LE(one_by_one(kAllGpu, options, 64).mean(), 0.03);
}

// Partial rotary, norms of whole q and k rows, biased sigmoid routing, MLA with a query latent.
class GpuSharedModels : public GpuModels {
 protected:
  void SetUp() override {
    GpuModels::SetUp();
    if (!IsSkipped()) take({"glm4_moe", "minimax_m2", "glm4_moe_lite"});
  }
  // Those that are there.
  void take(std::initializer_list<const char*> models) {
    models_.clear();
    for (const char* model : models) {
      if (!model_dir(model).empty()) models_.push_back(model);
    }
    if (models_.empty()) GTEST_SKIP() << "no ../shared/models";
  }
  void expect_near(const Comparison& all, double mean) {
    const int cases = 8 * static_cast<int>(models_.size());
    EXPECT_EQ(all.cases, cases);
    EXPECT_GE(all.equal, cases - 1);
    EXPECT_LE(all.mean(), mean);
  }
};

TEST_F(GpuSharedModels, WholeOnTheGpuGiveTheReferencesTokens) {
  for (const Placement& placement : {kAllGpu, kAlone}) {
    for (int64_t chunk : {1, 7, 64, 512}) expect_near(one_by_one(placement, {}, chunk), 0.01);
  }
}

TEST_F(GpuSharedModels, InBatches) {
  expect_near(together(kAllGpu), 0.01);
}

// The bound of int8 activations is llama.cpp's own figure (README of ../shared/models).
TEST_F(GpuSharedModels, WithExpertsOnTheCpu) {
  for (const Placement& placement : {kExpertsOnCpu, kHalf, kStreamed}) {
    expect_near(exact(placement), 0.01);
    EXPECT_LE(one_by_one(placement, {}, 64).mean(), 0.042) << placement.name;
  }
}

// Sparse attention of 32 positions over cases of up to 220 tokens.
class GpuSparseModels : public GpuSharedModels {
 protected:
  void SetUp() override {
    GpuModels::SetUp();
    if (!IsSkipped()) take({"deepseek_v32"});
  }
  static void expect_near(const Comparison& all, double mean) {
    EXPECT_EQ(all.cases, 7);
    EXPECT_GE(all.equal, 6);
    EXPECT_LE(all.mean(), mean);
  }
};

TEST_F(GpuSparseModels, WholeOnTheGpuGivesTheReferencesTokens) {
  for (const Placement& placement : {kAllGpu, kAlone}) {
    for (int64_t chunk : {1, 7, 64, 512}) expect_near(one_by_one(placement, {}, chunk), 0.01);
  }
}

TEST_F(GpuSparseModels, InBatches) {
  expect_near(together(kAllGpu), 0.01);
}

TEST_F(GpuSparseModels, WithExpertsOnTheCpu) {
  for (const Placement& placement : {kExpertsOnCpu, kHalf}) {
    expect_near(exact(placement), 0.01);
  }
}

// Delta nets, whose states are in slots, and gated attention.
class GpuDeltaNetModels : public GpuSharedModels {
 protected:
  void SetUp() override {
    GpuModels::SetUp();
    if (!IsSkipped()) take({"qwen3_next", "qwen35moe"});
  }
  static std::vector<int32_t> text(int32_t tokens) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < tokens; ++i) ids.push_back(i * 7 % 250 + 3);
    return ids;
  }
  // The logits behind the sequence's next tokens, `ids`.
  static std::vector<float> logits(Engine& engine, runtime::Sequence& sequence,
                                   std::span<const int32_t> ids) {
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    const auto done = engine.forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    const auto row = engine.logits(0);
    return {row.begin(), row.end()};
  }
};

TEST_F(GpuDeltaNetModels, WholeOnTheGpuGiveTheReferencesTokens) {
  for (const Placement& placement : {kAllGpu, kAlone}) {
    for (int64_t chunk : {1, 7, 64, 512}) expect_near(one_by_one(placement, {}, chunk), 0.01);
  }
}

TEST_F(GpuDeltaNetModels, InBatches) {
  expect_near(together(kAllGpu), 0.01);
}

TEST_F(GpuDeltaNetModels, WithoutGraphsToo) {
  EngineOptions options;
  options.gpu_graphs = false;
  expect_near(one_by_one(kAllGpu, options, 64), 0.01);
}

TEST_F(GpuDeltaNetModels, WithExpertsOnTheCpu) {
  for (const Placement& placement : {kExpertsOnCpu, kHalf, kStreamed}) {
    expect_near(exact(placement), 0.01);
    EXPECT_LE(one_by_one(placement, {}, 64).mean(), 0.042) << placement.name;
  }
}

// What is read from the slots is what another sequence continues from, on the same GPU.
TEST_F(GpuDeltaNetModels, StatesThatAreSavedGoOnToTheSameBits) {
  for (const char* model : models_) {
    const auto engine = open(model, kAllGpu);
    ASSERT_TRUE(engine);
    const std::vector<int32_t> ids = text(100);
    runtime::Sequence first = engine->new_sequence();
    logits(*engine, first, ids);
    std::vector<std::byte> states(engine->cache().state_bytes(first)), again(states.size());
    ASSERT_GT(states.size(), 0u);
    runtime::PlanRunner& runner = engine->runner();
    ASSERT_TRUE(runner.copy_states(first.states(), false, states).ok());
    const std::vector<int32_t> one = {42};
    const std::vector<float> want = logits(*engine, first, one);
    first.truncate(100);  // where the last step began
    ASSERT_EQ(first.length(), 100);
    std::vector<std::byte> zeros(states.size());
    ASSERT_TRUE(runner.copy_states(first.states(), true, zeros).ok());
    ASSERT_TRUE(runner.copy_states(first.states(), true, states).ok());
    ASSERT_TRUE(runner.copy_states(first.states(), false, again).ok());
    EXPECT_EQ(again, states);
    EXPECT_EQ(logits(*engine, first, one), want) << model;
  }
}

class TwoGpus : public GpuModels {
 protected:
  void SetUp() override {
    GpuModels::SetUp();
    if (IsSkipped()) return;
    auto second = runtime::open_gpu(1);
    if (!second) GTEST_SKIP() << second.error().message;
  }
};

TEST_F(TwoGpus, ByLayerRangesGiveTheReferencesTokens) {
  expect_near(one_by_one(kTwoGpus, {}, 64));
}

TEST_F(TwoGpus, WithAllRoutedExpertsOnTheCpu) {
  expect_near(exact(kTwoGpusExpertsOnCpu));
}

TEST_F(TwoGpus, InBatches) {
  expect_near(together(kTwoGpus));
}

TEST_F(TwoGpus, TogetherInEachLayerTheyGiveTheReferencesTokens) {
  expect_near(one_by_one(kTogether, {}, 64));
}

TEST_F(TwoGpus, FourTogetherInEachLayerGiveTheReferencesTokens) {
  if (auto fourth = runtime::open_gpu(3); !fourth) GTEST_SKIP() << fourth.error().message;
  expect_near(one_by_one(kFourTogether, {}, 64));
}

TEST_F(TwoGpus, TogetherInEachLayerInBatches) {
  expect_near(together(kTogether));
}

// Prompts of every length: the workspace that was taken at start is enough for each.
TEST_F(GpuModels, ChunksOfEveryLengthFindTheirWorkspace) {
  for (const char* model : {"llama", "deepseek2"}) {
    EngineOptions options;
    options.chunk_tokens = 300;
    const auto engine = open(model, kAllGpu, options);
    ASSERT_TRUE(engine);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 300; ++i) ids.push_back(i % 250 + 3);
    for (size_t count = 1; count <= ids.size(); ++count) {
      runtime::Sequence sequence = engine->new_sequence();
      const runtime::BatchItem item{&sequence, std::span(ids).first(count), runtime::Want::Last};
      const auto done = engine->forward({&item, 1});
      ASSERT_TRUE(done.ok()) << count << " tokens: " << done.error().message;
    }
  }
}

// MLA takes another form for a prompt than for the tokens that are generated beside it; each has
// its result as if it were alone.
TEST_F(GpuModels, PromptsAndGeneratedTokensOfOnePassGetTheirOwnResults) {
  for (const char* model : {"deepseek2", "deepseek3"}) {
    EngineOptions options;
    options.max_batch = 4;
    const auto engine = open(model, kAllGpu, options);
    ASSERT_TRUE(engine);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 300; ++i) ids.push_back(i * 7 % 250 + 3);
    // Tokens before the pass, and in it.
    const std::pair<size_t, size_t> texts[] = {{30, 1}, {0, 150}, {70, 1}, {100, 90}};
    std::vector<float> alone[4], together[4];
    for (const bool at_once : {false, true}) {
      std::vector<runtime::Sequence> sequences;
      std::vector<runtime::BatchItem> items;
      for (size_t i = 0; i < 4; ++i) sequences.push_back(engine->new_sequence());
      for (size_t i = 0; i < 4; ++i) {
        const auto [before, now] = texts[i];
        const runtime::BatchItem first{&sequences[i], std::span(ids).first(before),
                                       runtime::Want::Last};
        if (before > 0) {
          ASSERT_TRUE(engine->forward({&first, 1}).ok());
        }
        items.push_back({&sequences[i], std::span(ids).subspan(before, now), runtime::Want::Last});
        if (at_once) continue;
        ASSERT_TRUE(engine->forward({&items.back(), 1}).ok());
        alone[i].assign(engine->logits(0).begin(), engine->logits(0).end());
      }
      if (!at_once) continue;
      ASSERT_TRUE(engine->forward(items).ok());
      for (size_t i = 0; i < 4; ++i) {
        const auto row = engine->logits(static_cast<int64_t>(i));
        together[i].assign(row.begin(), row.end());
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      double error = 0, size = 0;
      for (size_t k = 0; k < alone[i].size(); ++k) {
        error += std::pow(double{alone[i][k]} - together[i][k], 2);
        size += std::pow(double{alone[i][k]}, 2);
      }
      EXPECT_LT(std::sqrt(error / size), 0.02) << model << ", text " << i;
    }
  }
}

// The scores of all routers over a text: by layer, [tokens][experts].
using Scores = std::map<std::string, std::vector<float>>;

Scores router_scores(Engine& engine, Scores& into, std::span<const int32_t> ids) {
  into.clear();
  runtime::Sequence sequence = engine.new_sequence();
  const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
  EXPECT_TRUE(engine.forward({&item, 1}).ok());
  return into;
}

// Rounding may swap experts whose scores are equal but for rounding, and swapped experts
// change all that follows: a token's log-probability by 1 and more. So: text by text, where
// the choice first differs from the exact CPU's, the two experts must be near-tied.
TEST_F(GpuModels, WhereTheChoiceOfExpertsFirstDiffersTheirScoresAreTied) {
  constexpr double kTie = 0.01;  // scores differ by up to 0.005 before any choice does
  for (const char* model : {"mixtral", "qwen2moe", "qwen3moe"}) {
    Scores scores[2], all[2];
    std::unique_ptr<Engine> engines[2];
    HostGpuLog log;
    for (int i = 0; i < 2; ++i) {
      EngineOptions options;
      options.on_result = [&, i](const runtime::StepResult& result) {
        if (!result.value.ends_with(".router")) return;
        scores[i][std::string(result.value)].assign(result.rows.begin(), result.rows.end());
      };
      if (i == 1) options.open_gpu = HostGpu::opener({}, &log);
      engines[i] = open(model, kAllGpu, options);
      ASSERT_TRUE(engines[i]);
    }
    const size_t top_k = std::string_view(model) == "qwen3moe" ? 3 : 2;
    int texts = 0, differing = 0;
    double largest = 0, most = 0;
    for (const nlohmann::json& reference : cases(model)) {
      auto ids = reference["prompt_ids"].get<std::vector<int32_t>>();
      for (const auto& id : reference["greedy_ids"]) ids.push_back(id.get<int32_t>());
      if (static_cast<int64_t>(ids.size()) > engines[0]->chunk_tokens()) continue;
      ++texts;
      for (int i = 0; i < 2; ++i) all[i] = router_scores(*engines[i], scores[i], ids);
      ASSERT_FALSE(all[0].empty());
      bool over = false;
      for (size_t t = 0; t < ids.size() && !over; ++t) {
        for (const auto& [layer, gpu] : all[0]) {
          const std::vector<float>& cpu = all[1].at(layer);
          const size_t experts = cpu.size() / ids.size();
          const auto chosen = [&](const std::vector<float>& from) {
            std::vector<size_t> order(experts);
            for (size_t e = 0; e < experts; ++e) order[e] = e;
            std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
              return from[t * experts + a] > from[t * experts + b];
            });
            order.resize(top_k);
            std::sort(order.begin(), order.end());
            return order;
          };
          for (size_t e = 0; e < experts; ++e) {
            most = std::max(most, std::abs(double{cpu[t * experts + e]} - gpu[t * experts + e]));
          }
          const auto a = chosen(cpu), b = chosen(gpu);
          if (a == b) continue;
          // The expert that only one side chose, and the one that only the other did.
          std::vector<size_t> only[2];
          std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only[0]));
          std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(only[1]));
          const double gap = cpu[t * experts + only[0][0]] - cpu[t * experts + only[1][0]];
          std::cout << model << ", text " << texts << ", token " << t << ", " << layer
                    << ": experts " << only[0][0] << " and " << only[1][0] << " are " << gap
                    << " apart\n";
          EXPECT_LT(std::abs(gap), kTie);
          largest = std::max(largest, std::abs(gap));
          ++differing;
          over = true;
          break;
        }
      }
    }
    std::cout << model << ": in " << differing << " of " << texts
              << " texts the choice differs, first where scores are at most " << largest
              << " apart; scores differ by " << most << " until then\n";
  }
}

}  // namespace
}  // namespace ktx::testing
