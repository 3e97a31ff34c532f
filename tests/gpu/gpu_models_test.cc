// The eight test models on a real GPU, whole and with experts on the CPU, against their
// references. Skipped where no GPU can be opened; tools/dev/check-gpu runs it.
//
// Plans are compiled by ktx-compile, or taken from $KTX_GPU_PLANS/MODEL-PLACEMENT.ktxplan
// where only the test program can be carried to the machine with the GPU; the models'
// references are read from $KTX_GPU_MODELS then.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "lib/runtime/gpu/gpu.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::Precision;

constexpr const char* kModels[] = {"llama",    "mixtral",   "qwen2",      "qwen2moe",
                                   "qwen3moe", "deepseek2", "deepseek2g", "deepseek3"};

struct Placement {
  const char* name;
  const char* rules;  // from rules/
};
constexpr Placement kAllGpu = {"all-gpu", "all-gpu.yaml"};
constexpr Placement kExpertsOnCpu = {"experts-on-cpu", "moe-experts-on-cpu.yaml"};
constexpr Placement kHalf = {"half", "../tests/gpu/half-of-the-experts.yaml"};
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
    return reference_cases(folder("KTX_GPU_MODELS", KTX_SOURCE_DIR "/tests/models") + "/" + model);
  }

  // All cases one by one, prompts in chunks of `chunk`.
  Comparison one_by_one(const Placement& placement, EngineOptions options, int64_t chunk,
                        size_t most = SIZE_MAX) {
    Comparison all;
    for (const char* model : kModels) {
      const auto engine = open(model, placement, options);
      if (!engine) continue;
      Comparison here;
      size_t count = 0;
      for (const nlohmann::json& reference : cases(model)) {
        if (count++ == most) break;
        compare_case(*engine, reference, chunk, here);
      }
      std::cout << model << ": " << here.equal << " of " << here.cases << ", mean " << here.mean()
                << ", worst " << here.worst << "\n";
      all.cases += here.cases;
      all.equal += here.equal;
      all.sum += here.sum;
      all.count += here.count;
      all.worst = std::max(all.worst, here.worst);
    }
    std::cout << placement.name << ", chunks of " << chunk << ": " << all.equal << " of "
              << all.cases << ", mean " << all.mean() << ", worst " << all.worst << "\n";
    return all;
  }

 private:
  std::string plan(const std::string& model, const Placement& placement) {
    const std::string carried = folder("KTX_GPU_PLANS", "");
    const std::string name = model + "-" + placement.name + ".ktxplan";
    if (!carried.empty()) return carried + "/" + name;
    const std::string path = std::string(KTX_SOURCE_DIR "/rules/") + placement.rules;
    const Finished run =
        run_program({ktx_compile(), "-q", model_gguf(model), path,
                     "--target=" KTX_SOURCE_DIR "/targets/h200.yaml", "-o", dir_.path(name)});
    EXPECT_EQ(run.status, 0) << run.err;
    return dir_.path(name);
  }
  TempDir dir_;
};

TEST_F(GpuModels, WholeOnTheGpuGiveTheReferencesTokens) {
  const Comparison all = one_by_one(kAllGpu, {}, 64);
  EXPECT_EQ(all.cases, 51);
  EXPECT_GE(all.equal, 49);
  EXPECT_LE(all.mean(), 0.01);
}

TEST_F(GpuModels, InChunksOfAnySize) {
  for (int64_t chunk : {1, 7, 512}) {
    const Comparison all = one_by_one(kAllGpu, {}, chunk, 2);
    EXPECT_EQ(all.cases, 16);
    EXPECT_GE(all.equal, 15) << chunk;
    EXPECT_LE(all.mean(), 0.01) << chunk;
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
  EngineOptions options;
  options.max_batch = 6;
  Comparison all;
  for (const char* model : kModels) {
    const auto engine = open(model, kAllGpu, options);
    if (engine) compare_together(*engine, cases(model), all);
  }
  std::cout << "batches of 6: " << all.equal << " of " << all.cases << ", mean " << all.mean()
            << ", worst " << all.worst << "\n";
  EXPECT_EQ(all.cases, 51);
  EXPECT_GE(all.equal, 49);
  EXPECT_LE(all.mean(), 0.01);
}

TEST_F(GpuModels, WithAllRoutedExpertsOnTheCpu) {
  EngineOptions options;
  options.precision = Precision::Exact;
  const Comparison exact = one_by_one(kExpertsOnCpu, options, 64);
  EXPECT_GE(exact.equal, 49);
  EXPECT_LE(exact.mean(), 0.01);
  const Comparison fast = one_by_one(kExpertsOnCpu, {}, 64);
  EXPECT_LE(fast.mean(), 0.03);
}

TEST_F(GpuModels, WithHalfOfTheLayersExpertsOnTheCpu) {
  EngineOptions options;
  options.precision = Precision::Exact;
  const Comparison exact = one_by_one(kHalf, options, 64);
  EXPECT_GE(exact.equal, 49);
  EXPECT_LE(exact.mean(), 0.01);
  const Comparison fast = one_by_one(kHalf, {}, 64);
  EXPECT_LE(fast.mean(), 0.03);
}

TEST_F(GpuModels, KvCacheInQ8StaysNear) {
  EngineOptions options;
  options.kv_type = plan::KvType::Q8_0;
  const Comparison all = one_by_one(kAllGpu, options, 64, 2);
  EXPECT_LE(all.mean(), 0.03);
}

}  // namespace
}  // namespace ktx::testing
