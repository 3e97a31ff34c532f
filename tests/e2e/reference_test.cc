// The test models from GGUF to text, against their references: greedy tokens and
// log-probabilities of the 45 prompts of the first seven, and those of the second set.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/comparison.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tests/support/unsplit_kv_b.h"

namespace ktx::testing {
namespace {

using nlohmann::json;

const char* const kModels[] = {"llama",    "mixtral",   "qwen2",    "qwen2moe",
                               "qwen3moe", "deepseek2", "deepseek3"};

class Reference {
 public:
  Reference(const std::string& gguf, const std::string& reference,
            const std::string& inputs = "int8") {
    const Finished run =
        run_program({ktx_compile(), "-q", gguf, "--inputs=" + inputs, "-o", plan()});
    EXPECT_EQ(run.status, 0) << run.err;
    cases_ = json::parse(read_file(reference))["cases"];
  }

  Comparison compare(const std::string& precision) const {
    Comparison out;
    for (const json& reference : cases_) {
      const Finished run = run_program({ktx_run(), "generate", plan(), "--precision=" + precision,
                                        "--temp", "0", "--json", "--logprobs", "40", "-n", "96",
                                        "--prompt", reference["prompt"].get<std::string>()});
      EXPECT_EQ(run.status, 0) << run.err;
      const json answer = json::parse(run.out, nullptr, false);
      if (!answer.is_object()) continue;
      EXPECT_EQ(answer["prompt_ids"], reference["prompt_ids"]);
      ++out.cases;
      out.equal += compare_case(answer, reference, out);
    }
    return out;
  }

 private:
  std::string plan() const { return dir_.path("model.ktxplan"); }

  static bool compare_case(const json& answer, const json& reference, Comparison& out) {
    const json& steps = reference["steps"];
    for (size_t i = 0; i < steps.size(); ++i) {
      if (i >= answer["steps"].size()) return false;
      std::map<int, double> found;
      for (const json& item : answer["steps"][i]["top"]) found[item[0]] = item[1];
      const json& ids = steps[i]["top_ids"];
      const json& logprobs = steps[i]["top_logprobs"];
      for (size_t k = 0; k < ids.size(); ++k) {
        const auto it = found.find(ids[k].get<int>());
        if (it == found.end()) continue;
        out.add(it->second, logprobs[k].get<double>());
      }
      if (answer["ids"][i] != reference["greedy_ids"][i]) {
        return logprobs[0].get<double>() - logprobs[1].get<double>() < kReferenceTie;
      }
    }
    return true;
  }

  TempDir dir_;
  json cases_;
};

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, ExactPrecisionGivesTheReferencesTokensAndLogprobs) {
  const std::string name = GetParam();
  const Reference reference(model_gguf(name), model_dir(name) + "/reference-q4_k_m.json");
  const Comparison result = reference.compare("exact");
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_GE(result.cases, 6);
  EXPECT_LE(result.mean(), 0.002);
  // The references of all but deepseek2 are llama.cpp's, with its F16
  // cache. One of its log-probabilities, qwen2moe's second best of -13.9 where the
  // best one is all but certain, is 0.071 from ours and from lib/reference.
  EXPECT_LE(result.worst, name == "qwen2moe" ? 0.075 : 0.05);
  RecordProperty("mean", std::to_string(result.mean()));
  RecordProperty("worst", std::to_string(result.worst));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param); });

// With int8 activations, the default, and BF16 ones, which come nearer.
class DefaultPrecision : public ::testing::TestWithParam<const char*> {};

TEST_P(DefaultPrecision, AgreesInAtLeast41Of45Cases) {
  int equal = 0, cases = 0;
  for (const std::string name : kModels) {
    const Reference reference(model_gguf(name), model_dir(name) + "/reference-q4_k_m.json",
                              GetParam());
    const Comparison result = reference.compare("fast");
    equal += result.equal;
    cases += result.cases;
    RecordProperty("mean_" + name, std::to_string(result.mean()));
    EXPECT_LE(result.mean(), GetParam() == std::string("bf16") ? 0.02 : 0.04) << name;
  }
  RecordProperty("equal", equal);
  EXPECT_EQ(cases, 45);
  EXPECT_GE(equal, 41);
  RecordProperty("equal", equal);
}

INSTANTIATE_TEST_SUITE_P(Inputs, DefaultPrecision, ::testing::Values("int8", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

// The second set, whose references have an F32 cache and no rounding at all.
struct SharedModel {
  const char* name;
  double int8_mean;  // llama.cpp's with int8 activations
};
const SharedModel kSecondSet[] = {
    {"glm4_moe", 0.048},  {"minimax_m2", 0.042},   {"glm4_moe_lite", 0.053},
    {"gemma3", 0.024},    {"gpt_oss", 0.033},      {"qwen3_next", 0.043},
    {"qwen35moe", 0.043}, {"deepseek_v32", 0.057}, {"deepseek2g", 0.05}};

// Six of seven, and five of deepseek2g's six.
double most_equal(int cases) {
  return std::min(0.85 * cases, cases - 1.0);
}

class EverySharedModel : public ::testing::TestWithParam<SharedModel> {
 protected:
  void SetUp() override {
    if (test_model_dir(name()).empty()) GTEST_SKIP() << "no test model " << name();
  }
  static std::string name() { return GetParam().name; }
  static std::string reference() { return model_dir(name()) + "/reference-q4_k_m.json"; }
};

TEST_P(EverySharedModel, ExactPrecisionGivesTheReferencesTokensAndLogprobs) {
  const Comparison result = Reference(model_gguf(name()), reference()).compare("exact");
  EXPECT_GE(result.cases, 6);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_LE(result.mean(), 0.001);
  EXPECT_LE(result.worst, 0.02);
  RecordProperty("mean", std::to_string(result.mean()));
}

TEST_P(EverySharedModel, DefaultPrecisionIsAsNearAsLlamaCppsWithInt8Activations) {
  const Comparison result = Reference(model_gguf(name()), reference()).compare("fast");
  EXPECT_GE(result.equal, most_equal(result.cases));
  EXPECT_LE(result.mean(), GetParam().int8_mean);
  RecordProperty("mean", std::to_string(result.mean()));
}

TEST_P(EverySharedModel, Bf16ActivationsComeNearer) {
  const Comparison result = Reference(model_gguf(name()), reference(), "bf16").compare("fast");
  EXPECT_GE(result.equal, most_equal(result.cases));
  EXPECT_LE(result.mean(), 0.022);
  RecordProperty("mean", std::to_string(result.mean()));
}

TEST_P(EverySharedModel, ChunksAndBatchesGiveTheReferences) {
  const TempDir dir;
  const std::string plan = dir.path("model.ktxplan");
  const Finished run = run_program({ktx_compile(), "-q", model_gguf(name()), "-o", plan});
  ASSERT_EQ(run.status, 0) << run.err;
  runtime::EngineOptions options;
  options.precision = runtime::Precision::Exact;
  options.chunk_tokens = 512;
  options.max_batch = 6;
  const auto engine = runtime::Engine::open(plan, options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const json cases = reference_cases(model_dir(name()));
  Comparison result;
  for (const int64_t chunk : {1, 7, 64, 512}) compare_case(**engine, cases.back(), chunk, result);
  compare_together(**engine, cases, result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_LE(result.mean(), 0.001);
  EXPECT_LE(result.worst, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Models, EverySharedModel, ::testing::ValuesIn(kSecondSet),
                         [](const auto& info) { return std::string(info.param.name); });

// Older files hold one matrix where newer ones hold two; in F16 the joined matrix
// equals neither bit for bit, so tokens are compared and log-probabilities bounded.
TEST(Reference, UnsplitLatentProjectionsGiveTheSameAnswers) {
  for (const std::string name : {"deepseek2", "deepseek3"}) {
    const TempDir dir;
    Result<input::GgufFile> gguf = input::GgufFile::open(model_gguf(name));
    ASSERT_TRUE(gguf) << gguf.error().message;
    const Status made = unsplit_kv_b(*gguf, dir.path("unsplit.gguf"));
    ASSERT_TRUE(made) << made.error().message;
    const Reference reference(dir.path("unsplit.gguf"), model_dir(name) + "/reference-q4_k_m.json");
    const Comparison result = reference.compare("exact");
    EXPECT_EQ(result.equal, result.cases) << name;
    EXPECT_LE(result.mean(), 0.002) << name;
  }
}

TEST(Reference, Mxfp4ExpertsGiveTheTransformersReference) {
  const std::string folder = shared_dir() + "/models/gpt_oss";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const Reference reference(folder + "/gpt_oss-mxfp4.gguf", folder + "/reference-mxfp4.json");
  const Comparison exact = reference.compare("exact");
  EXPECT_EQ(exact.equal, exact.cases);
  EXPECT_LE(exact.mean(), 0.001);
  EXPECT_LE(exact.worst, 0.02);
  const Comparison fast = reference.compare("fast");
  EXPECT_GE(fast.equal, 0.85 * fast.cases);
  EXPECT_LE(fast.mean(), 0.033);
}

TEST(Reference, F16FileGivesTheTransformersReference) {
  const std::string folder = shared_dir() + "/models/qwen2";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const Reference reference(folder + "/qwen2-f16.gguf", folder + "/reference.json");
  const Comparison result = reference.compare("exact");
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_LE(result.mean(), 0.002);
  EXPECT_LE(result.worst, 0.05);
}

}  // namespace
}  // namespace ktx::testing
