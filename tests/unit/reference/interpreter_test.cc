// The interpreter on the test models against their references: the greedy ids, and the listed
// log-probabilities. This checks both the architectures' data (tensors, rotary scaling,
// routing) and the interpreter, which is the oracle of other tests.
#include "lib/reference/interpreter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/arch/build_graph.h"
#include "lib/input/gguf_config.h"
#include "tests/support/test_models.h"

namespace ktx::reference {
namespace {

using nlohmann::json;

std::vector<float> log_softmax(std::vector<float> x) {
  const float top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (float v : x) sum += std::exp(static_cast<double>(v) - top);
  for (float& v : x) v -= top + static_cast<float>(std::log(sum));
  return x;
}

struct Differences {
  double sum = 0;
  double worst = 0;
  int64_t count = 0;
  int64_t large = 0;  // above 0.05
};

void run_case(Interpreter& model, const json& one, Differences& differences) {
  model.reset();
  std::vector<float> logits;
  for (int32_t token : one["prompt_ids"]) logits = model.next(token);
  const json& ids = one["greedy_ids"];
  for (size_t step = 0; step < ids.size(); ++step) {
    const json& wanted = one["steps"][step];
    const std::vector<double> top = wanted["top_logprobs"];
    const std::vector<float> logprobs = log_softmax(logits);
    const auto best = std::max_element(logprobs.begin(), logprobs.end()) - logprobs.begin();
    if (top[0] - top[1] < 0.005 && best != ids[step]) return;  // either is right
    ASSERT_EQ(best, ids[step].get<int64_t>()) << "step " << step;
    for (size_t i = 0; i < top.size(); ++i) {
      const double d = std::abs(logprobs[wanted["top_ids"][i].get<size_t>()] - top[i]);
      differences.sum += d;
      ++differences.count;
      differences.large += d > 0.05;
      differences.worst = std::max(differences.worst, d);
    }
    if (step + 1 < ids.size()) logits = model.next(ids[step].get<int32_t>());
  }
}

class References : public ::testing::TestWithParam<const char*> {};

TEST_P(References, GreedyIdsAndLogprobsAgree) {
  const std::string dir = ktx::testing::test_model_dir(GetParam());
  if (dir.empty()) GTEST_SKIP() << "no test model " << GetParam();
  std::ifstream file(dir + "/reference-q4_k_m.json");
  if (!file) GTEST_SKIP() << "no reference-q4_k_m.json in " << dir;
  const auto gguf = input::GgufFile::open(ktx::testing::test_model_gguf(GetParam()));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  DiagSink diags;
  const auto config = input::HfConfig::read(dir + "/config.json");
  ASSERT_TRUE(config.ok());
  const auto merged = input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
  const auto graph = arch::build_graph(merged, &*gguf, diags);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  auto model = Interpreter::make(*graph, *gguf);
  ASSERT_TRUE(model.ok()) << model.error().message;

  const json reference = json::parse(file);
  Differences differences;
  for (const json& one : reference["cases"]) {
    SCOPED_TRACE(one["prompt"].get<std::string>());
    run_case(*model, one, differences);
  }
  const double mean = differences.sum / static_cast<double>(differences.count);
  RecordProperty("mean", fmt::format("{:.6f}", mean));
  std::printf("%s: %ld logprobs, mean difference %.6f, worst %.6f\n", GetParam(),
              static_cast<long>(differences.count), mean, differences.worst);
  EXPECT_LT(mean, 0.002);
  // One token of qwen2moe has its second and third expert 3.5e-6 apart (scores of
  // 0.05): the reference, with its F16 cache, takes the other one, and one logprob
  // differs by 0.07. With that expert swapped the worst is 0.006.
  EXPECT_LE(differences.large, std::string_view(GetParam()) == "qwen2moe" ? 1 : 0);
  EXPECT_LT(differences.worst, 0.08);
}

INSTANTIATE_TEST_SUITE_P(Models, References, ::testing::ValuesIn(ktx::testing::present_models()),
                         [](const auto& info) { return std::string(info.param); });

TEST(Route, LimitsToTheBestGroups) {
  RouterAttrs attrs;
  attrs.experts = 4;
  attrs.top_k = 2;
  attrs.groups = 2;
  const float logits[] = {3, 0, 2, 2.5};  // group 0 has the best expert
  auto chosen = route(attrs, logits, {});
  EXPECT_EQ(chosen[0].first, 0);
  EXPECT_EQ(chosen[1].first, 1);
  attrs.group_score = static_cast<int32_t>(GroupScore::SumOfTwoBest);
  attrs.scoring = static_cast<int32_t>(Scoring::Sigmoid);
  chosen = route(attrs, logits, {});
  EXPECT_EQ(chosen[0].first, 3);
  EXPECT_EQ(chosen[1].first, 2);
}

TEST(Route, BiasChoosesButDoesNotWeigh) {
  RouterAttrs attrs;
  attrs.experts = 2;
  attrs.top_k = 1;
  attrs.scoring = static_cast<int32_t>(Scoring::Sigmoid);
  attrs.scale = 2;
  const float logits[] = {0, -1};
  const float bias[] = {0, 5};
  const auto chosen = route(attrs, logits, bias);
  EXPECT_EQ(chosen[0].first, 1);
  EXPECT_FLOAT_EQ(chosen[0].second, 2 / (1 + std::exp(1.0F)));
}

}  // namespace
}  // namespace ktx::reference
