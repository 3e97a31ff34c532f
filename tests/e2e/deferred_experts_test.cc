// Experts that are added a layer later (lib/passes/lower/deferred_experts.h), without a GPU: with
// the Gpu in host memory (tests/support/host_gpu.h), which does queued work as late as it may.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/stream_memory.h"
#include "lib/runtime/engine/bound_parts.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// `replace` of the experts; the rest on `device`.
std::string rules_for(const std::string& replace, const std::string& device = "cuda:0") {
  return "version: 1\nrules:\n  - match: {kind: experts}\n    replace: " + replace +
         "\n    recursive: false\n  - match: {name: \".\"}\n    replace: {device: \"" + device +
         "\"}\n";
}
std::string deferring(int experts, const std::string& device = "cuda:0") {
  return rules_for(experts == 0
                       ? "{device: cpu}"
                       : fmt::format("{{device: cpu, deferred: {}, lossy: allow}}", experts),
                   device);
}

class Deferred {
 public:
  explicit Deferred(const std::string& model, const std::string& rules,
                    const std::string& prefer = "stream-experts=no",
                    const std::string& target = "targets/h200.yaml") {
    const Finished run = run_program(
        {ktx_compile(), "-q", model_gguf(model), dir_.write("rules.yaml", rules),
         "--target=" + source_dir() + "/" + target, "--prefer=" + prefer, "-o", plan()});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }

  std::unique_ptr<runtime::Engine> open(runtime::EngineOptions options = {}) {
    options.threads = 2;
    options.precision = options.precision.value_or(runtime::Precision::Exact);
    options.open_gpu = HostGpu::opener({}, &log);
    auto engine = runtime::Engine::open(plan(), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine ? engine.take() : nullptr;
  }

  HostGpuLog log;

 private:
  TempDir dir_;
};

const std::vector<int32_t> kIds = {3, 40, 5, 60, 7, 80, 9, 10, 11, 12, 33, 14};

// The logits behind each chunk of kIds.
std::vector<std::vector<float>> logits_of(runtime::Engine& engine,
                                          const std::vector<size_t>& chunks) {
  std::vector<std::vector<float>> all;
  runtime::Sequence sequence = engine.new_sequence();
  size_t at = 0;
  for (size_t tokens : chunks) {
    const runtime::BatchItem item{&sequence, std::span(kIds).subspan(at, tokens),
                                  runtime::Want::Last};
    const auto done = engine.forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    const auto row = engine.logits(0);
    all.emplace_back(row.begin(), row.end());
    at += tokens;
  }
  return all;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << i;
  }
}

class DeferredModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (test_model_dir(GetParam()).empty()) GTEST_SKIP() << "no test model " << GetParam();
  }
};

// What the CPU alone computes from the same rule, in any chunks and beside other texts: the same
// bits each time. A wait that is left out would read old numbers.
TEST_P(DeferredModel, GivesTheSameInChunksAndInBatchesBesideAGpu) {
  const std::vector<float> wanted =
      logits_of(*Deferred(GetParam(), deferring(1, "cpu")).open(), {kIds.size()})[0];
  Deferred hybrid(GetParam(), deferring(1));
  runtime::EngineOptions options;
  options.max_batch = 3;
  const auto engine = hybrid.open(options);
  ASSERT_TRUE(engine);
  const std::vector<float> whole = logits_of(*engine, {kIds.size()})[0];
  expect_near(whole, wanted);
  EXPECT_EQ(logits_of(*engine, {5, 6, 1}).back(), whole);
  EXPECT_EQ(logits_of(*engine, std::vector<size_t>(kIds.size(), 1)).back(), whole);
  // Beside two other texts.
  std::vector<runtime::Sequence> texts;
  for (int i = 0; i < 3; ++i) texts.push_back(engine->new_sequence());
  const auto all = std::span(kIds);
  for (size_t t = 0; t < kIds.size(); ++t) {
    const std::vector<runtime::BatchItem> items = {
        {&texts[0], all.subspan(kIds.size() - 1 - t, 1), runtime::Want::Last},
        {&texts[1], all.subspan(t, 1), runtime::Want::Last},
        {&texts[2], all.subspan(t / 2, 1), runtime::Want::Last}};
    ASSERT_TRUE(engine->forward(items).ok());
  }
  const auto row = engine->logits(1);
  EXPECT_EQ(std::vector<float>(row.begin(), row.end()), whole);
}

TEST_P(DeferredModel, IsAlmostTheSameWhereAGpuStreams) {
  Deferred alone(GetParam(), deferring(1)), streamed(GetParam(), deferring(1), "stream-experts=4");
  const auto engine = streamed.open();
  ASSERT_TRUE(engine);
  const auto wanted = logits_of(*alone.open(), {7, 4, 1});
  const auto found = logits_of(*engine, {7, 4, 1});
  for (size_t i = 0; i < found.size(); ++i) expect_near(found[i], wanted[i]);
  EXPECT_GT(streamed.log.retiles, 0);
  // Both parts of a layer are streamed, over the same weights.
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  std::map<std::vector<int32_t>, int> products;
  for (const program::Stream& stream : file->streams) ++products[stream.products];
  int once = 0;
  for (const auto& [blobs, times] : products) {
    once += times == 1;
    EXPECT_LE(times, 2);
  }
  EXPECT_EQ(once, 1) << "of the last layer no expert is deferred";
}

INSTANTIATE_TEST_SUITE_P(All, DeferredModel,
                         ::testing::Values("qwen2moe", "qwen3moe", "deepseek2", "deepseek3",
                                           "glm4_moe", "mixtral", "minimax_m2", "glm4_moe_lite",
                                           "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

bool has_step(const plan::PlanView& plan, const runtime::Part& part, auto is) {
  const auto steps = plan.steps.subspan(part.first_step, part.step_count);
  return std::any_of(steps.begin(), steps.end(), is);
}

// The CPU computes deferred experts while the GPU goes on, without waiting for anything first.
TEST(DeferredExperts, AreAPartThatWaitsForNoGpu) {
  Deferred deferred("qwen3moe", deferring(1));
  const plan::PlanFile file = plan::PlanFile::open(deferred.plan()).take();
  const plan::PlanView& plan = file.view();
  const runtime::BoundParts bound = runtime::bind_parts(plan);
  int layers = 0;
  for (size_t p = 0; p < bound.parts.size(); ++p) {
    const runtime::Part& part = bound.parts[p];
    const auto is_deferred = [&](const plan::StepRecord& step) {
      return step.op == static_cast<uint32_t>(StepOp::GroupExperts) &&
             plan.attrs_of<GroupExpertsAttrs>(step).first_rank > 0;
    };
    if (part.kind != runtime::Part::Kind::Cpu || !has_step(plan, part, is_deferred)) continue;
    ++layers;
    EXPECT_THAT(part.waits_for, IsEmpty()) << "part " << p;
    ASSERT_GT(p, 0u);
    ASSERT_LT(p + 1, bound.parts.size());
    EXPECT_EQ(bound.parts[p - 1].kind, runtime::Part::Kind::Gpu);
    // Attention and router of the next layer are queued before, and waited for behind.
    const runtime::Part& next = bound.parts[p + 1];
    EXPECT_EQ(next.kind, runtime::Part::Kind::Cpu);
    ASSERT_THAT(next.waits_for, SizeIs(1));
    EXPECT_LT(next.waits_for[0], static_cast<int>(p));
    EXPECT_TRUE(has_step(plan, bound.parts[static_cast<size_t>(next.waits_for[0])],
                         [](const plan::StepRecord& step) {
                           return step.op == static_cast<uint32_t>(StepOp::Attention);
                         }));
  }
  EXPECT_EQ(layers, 2) << "of three";
}

// Layers on two GPUs: the next layer's GPU goes on as well.
TEST(DeferredExperts, AreTheSameBesideTwoGpus) {
  const std::string rules =
      "version: 1\nrules:\n  - match: {kind: experts}\n"
      "    replace: {device: cpu, deferred: 1, lossy: allow}\n    recursive: false\n"
      "  - match: {name: \".\"}\n    replace: {device: \"cuda:0-1\"}\n";
  Deferred one("qwen3moe", deferring(1)),
      two("qwen3moe", rules, "stream-experts=no", "tests/gpu/two-h200.yaml");
  const auto engine = two.open();
  ASSERT_TRUE(engine);
  const auto wanted = logits_of(*one.open(), {7, 1, 1, 1, 1, 1});
  const auto found = logits_of(*engine, {7, 1, 1, 1, 1, 1});
  for (size_t i = 0; i < found.size(); ++i) expect_near(found[i], wanted[i]);
}

// With experts of a layer on the GPU, too: of those the CPU has.
TEST(DeferredExperts, AreThoseOfTheCpuWhereALayerIsSplit) {
  const std::string replace =
      "{device: cpu, experts: {cuda:0: \"0, 2, 5\"}, deferred: 2, lossy: allow}";
  Deferred split("qwen3moe", rules_for(replace));
  const auto engine = split.open();
  ASSERT_TRUE(engine);
  const auto found = logits_of(*engine, {7, 4, 1});
  EXPECT_EQ(logits_of(*engine, std::vector<size_t>(kIds.size(), 1)).back(), found.back());
  const runtime::ExpertUse use = engine->stats().expert_use;
  EXPECT_EQ(use.total(), 2 * 12 * 9);  // tokens, three layers, three experts each
  EXPECT_GT(use.gpu, 0);
  EXPECT_GT(use.cpu, 0);
}

TEST(DeferredExperts, AskForAReaderThatKnowsThem) {
  const auto minor = [](int experts) {
    const std::string bytes = read_file(Deferred("qwen3moe", deferring(experts)).plan());
    plan::Prefix prefix;
    std::memcpy(&prefix, bytes.data(), sizeof(prefix));
    return prefix.min_reader_minor;
  };
  EXPECT_EQ(minor(0), 0u);
  EXPECT_EQ(minor(1), 2u);
}

TEST(DeferredExperts, AreNamedByInspectAndEstimate) {
  Deferred deferred("qwen3moe", deferring(2));
  const Finished inspected = run_program({ktx_run(), "inspect", deferred.plan()});
  EXPECT_THAT(inspected.out,
              HasSubstr("2 of a token's 3 experts are added a layer later, in 2 layers (lossy)"));
  TempDir dir;
  const std::string rules = dir.write("rules.yaml", deferring(2));
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> call = {ktx_compile(), "--check", rules, model_gguf("qwen3moe"),
                                     "--target=" + source_dir() + "/targets/h200.yaml"};
    call.insert(call.end(), more.begin(), more.end());
    return run_program(call).out;
  };
  EXPECT_THAT(check({"--estimate"}),
              HasSubstr("deferred: 2 of a token's 3 experts are added a layer later, in 2 layers"));
  EXPECT_THAT(check({"--explain", "model.layers.0.mlp.experts"}),
              HasSubstr("2 of a token's 3 experts are added a layer later (deferred)"));
  EXPECT_THAT(check({"--explain", "model.layers.2.mlp.experts"}), Not(HasSubstr("a layer later")));
  const Finished out =
      run_program({ktx_run(), "inspect", deferred.plan(), "--export-gguf", dir.path("out.gguf")});
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_EQ(read_file(dir.path("out.gguf")), read_file(model_gguf("qwen3moe")))
      << "the weights are as they were";
}

// What deferral does to what a model says, on the texts of its reference: the mean distance of the
// listed log-probabilities, and how often the most likely token stays. docs/rules.md states them.
struct Effect {
  double distance = 0;
  int64_t listed = 0, steps = 0, same = 0;
  double mean() const { return distance / static_cast<double>(std::max<int64_t>(listed, 1)); }
};

std::vector<double> log_probabilities(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit} - top);
  std::vector<double> all;
  for (float logit : logits) all.push_back(logit - top - std::log(sum));
  return all;
}

Effect effect_of(const std::string& model, int experts) {
  Deferred with(model, deferring(experts, "cpu")), without(model, deferring(0, "cpu"));
  const auto a = without.open(), b = with.open();
  Effect effect;
  for (const nlohmann::json& reference : reference_cases(model_dir(model))) {
    std::vector<int32_t> ids = reference["prompt_ids"].get<std::vector<int32_t>>();
    const auto greedy = reference["greedy_ids"].get<std::vector<int32_t>>();
    runtime::Sequence of_a = a->new_sequence(), of_b = b->new_sequence();
    for (size_t i = 0; i < reference["steps"].size(); ++i) {
      const runtime::BatchItem item_a{&of_a, ids, runtime::Want::Last},
          item_b{&of_b, ids, runtime::Want::Last};
      EXPECT_TRUE(a->forward({&item_a, 1}).ok() && b->forward({&item_b, 1}).ok());
      const auto before = log_probabilities(a->logits(0)), after = log_probabilities(b->logits(0));
      for (const nlohmann::json& id : reference["steps"][i]["top_ids"]) {
        effect.distance += std::abs(after[id.get<size_t>()] - before[id.get<size_t>()]);
        ++effect.listed;
      }
      ++effect.steps;
      effect.same += std::max_element(before.begin(), before.end()) - before.begin() ==
                     std::max_element(after.begin(), after.end()) - after.begin();
      ids = {greedy[i]};
    }
  }
  return effect;
}

struct Stated {
  const char* model;
  int deferred;
  double mean;
  int64_t same;
};
void PrintTo(const Stated& row, std::ostream* out) {
  *out << row.model << ", " << row.deferred << " deferred";
}
constexpr Stated kStated[] = {
    {"qwen2moe", 1, 0.1206, 148},      {"qwen3moe", 1, 0.0995, 147},
    {"qwen3moe", 2, 0.3011, 145},      {"deepseek2", 1, 0.0487, 116},
    {"deepseek2", 2, 0.1488, 115},     {"deepseek3", 1, 0.2408, 271},
    {"glm4_moe", 1, 0.1287, 359},      {"glm4_moe", 2, 0.2497, 358},
    {"mixtral", 1, 0.2410, 148},       {"minimax_m2", 1, 0.2816, 329},
    {"minimax_m2", 2, 0.6042, 328},    {"glm4_moe_lite", 1, 0.1044, 354},
    {"glm4_moe_lite", 2, 0.2462, 353}, {"gpt_oss", 1, 0.0527, 386},
    {"gpt_oss", 2, 0.1469, 386},
};

class DeferredAnswers : public ::testing::TestWithParam<Stated> {};

TEST_P(DeferredAnswers, ChangeByAsMuchAsIsStated) {
  const Stated& row = GetParam();
  if (test_model_dir(row.model).empty()) GTEST_SKIP() << "no model " << row.model;
  const Effect effect = effect_of(row.model, row.deferred);
  EXPECT_NEAR(effect.mean(), row.mean, 0.005);
  EXPECT_NEAR(static_cast<double>(effect.same), static_cast<double>(row.same), 1);
}

INSTANTIATE_TEST_SUITE_P(Models, DeferredAnswers, ::testing::ValuesIn(kStated),
                         [](const auto& info) {
                           return fmt::format("{}_{}", info.param.model, info.param.deferred);
                         });

}  // namespace
}  // namespace ktx::testing
