// Experts of a layer split between a GPU and the CPU, without a GPU: with the Gpu in host memory
// (tests/support/host_gpu.h). In decode, in chunks and in batches, with the CPU's experts computed
// by the CPU or streamed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lib/plan/expert_profile.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/stream_memory.h"
#include "lib/runtime/engine/plan_runner.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

std::string rules_of(const std::string& replace) {
  return "version: 1\nrules:\n  - match: {kind: experts}\n    replace: " + replace +
         "\n    recursive: false\n  - match: {name: \".\"}\n    replace: {device: cuda:0}\n";
}
const std::string kAnyThree = rules_of("{device: cpu, experts: {cuda:0: 3}}");

class Split {
 public:
  // `arguments` as of ktx-compile; rules are a text.
  Split(const std::string& gguf, const std::string& rules,
        const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> command = {ktx_compile(),
                                        "-q",
                                        gguf,
                                        dir_.write("rules.yaml", rules),
                                        "--target=" + source_dir() + "/targets/h200.yaml",
                                        "-o",
                                        plan()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Finished run = run_program(command);
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

  // By device: experts of all layers.
  std::map<std::string, int> experts() const {
    const plan::PlanFile file = plan::PlanFile::open(plan()).take();
    std::map<std::string, int> found;
    for (const plan::StepRecord& step : file.view().steps) {
      if (step.op != static_cast<uint32_t>(StepOp::ExpertsDown)) continue;
      found[std::string(file.view().string(step.device))] +=
          file.view().attrs_of<ExpertsAttrs>(step).experts;
    }
    return found;
  }

  HostGpuLog log;

 private:
  TempDir dir_;
};

// How a model's experts are divided; `use`: by a profile.
struct Division {
  const char* name;
  std::string rules;
  bool by_use = false;
};
const Division kDivisions[] = {
    {"on_the_cpu", rules_of("{device: cpu}")},
    {"half_of_the_layers",
     "version: 1\nrules:\n  - match: {kind: experts, layers: 2..}\n    replace: {device: cpu}\n"
     "    recursive: false\n  - match: {name: \".\"}\n    replace: {device: cuda:0}\n"},
    {"any_three", kAnyThree},
    {"named_and_any", read_file(source_dir() + "/tests/gpu/split-experts.yaml")},
    {"most_on_the_gpu", rules_of("{device: cuda:0, experts: {cpu: 1}}")},
    {"by_use", kAnyThree, true},
};

// A profile in which expert 5 is chosen most, then 2, then 7.
std::string skewed_profile(const std::string& model) {
  const nlohmann::json config = nlohmann::json::parse(read_file(model_dir(model) + "/config.json"));
  const Finished run = run_program(
      {ktx_compile(), "--emit=module-ir", model_gguf(model), "--stop-after=match-rules"});
  const std::string word = " architecture ";
  const size_t at = run.out.find(word) + word.size();
  plan::ExpertProfile profile;
  profile.architecture = run.out.substr(at, run.out.find(' ', at) - at);
  int64_t experts = 0;
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (config.contains(key)) experts = config[key];
  }
  for (int32_t layer = 0; layer < config["num_hidden_layers"].get<int32_t>(); ++layer) {
    std::vector<uint64_t> counts(static_cast<size_t>(experts), 10);
    counts[5] = 900, counts[2] = 500, counts[7 % counts.size()] = 300;
    profile.layers[layer] = counts;
  }
  return plan::to_json(profile);
}

void PrintTo(const Division& division, std::ostream* out) {
  *out << division.name;
}

struct Models {
  const char* name;
  std::vector<const char*> all;
};
const Models kModels[] = {
    {"kinds", {"qwen3moe", "deepseek3", "gpt_oss"}},
    {"others",
     {"qwen2moe", "deepseek2", "deepseek2g", "mixtral", "glm4_moe", "minimax_m2", "glm4_moe_lite"}},
};
void PrintTo(const Models& models, std::ostream* out) {
  *out << models.name;
}

class SplitModels : public ::testing::TestWithParam<std::tuple<Models, Division, bool>> {};

// All cases of these families: whole prompts in chunks one by one, then all at once.
TEST_P(SplitModels, GiveTheReferencesTokens) {
  const auto& [models, division, streams] = GetParam();
  Comparison all;
  for (const char* model : models.all) {
    if (test_model_dir(model).empty()) continue;
    SCOPED_TRACE(model);
    TempDir dir;
    std::vector<std::string> arguments = {std::string("--prefer=stream-experts=") +
                                          (streams ? "4" : "no")};
    if (division.by_use) {
      arguments.push_back("--expert-profile=" + dir.write("use.json", skewed_profile(model)));
    }
    Split split(model_gguf(model), division.rules, arguments);
    runtime::EngineOptions options;
    options.max_batch = 4;
    const auto engine = split.open(options);
    ASSERT_TRUE(engine);
    const nlohmann::json cases = reference_cases(model_dir(model));
    Comparison here;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (i % 2 == 0) compare_case(*engine, cases[i], i % 4 == 0 ? 7 : 64, here);
    }
    nlohmann::json others;
    for (size_t i = 1; i < cases.size(); i += 2) others.push_back(cases[i]);
    compare_together(*engine, others, here);
    EXPECT_LE(here.mean(), 0.002);
    EXPECT_EQ(split.log.retiles > 0, streams);
    all.cases += here.cases, all.equal += here.equal;
    all.sum += here.sum, all.count += here.count;
  }
  EXPECT_GE(all.cases, 3 * 6);
  EXPECT_GE(51 * all.equal, 49 * all.cases) << all.equal << " of " << all.cases;
  EXPECT_LE(all.mean(), 0.02);
}

INSTANTIATE_TEST_SUITE_P(All, SplitModels,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::ValuesIn(kDivisions), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param).name +
                                  (std::get<2>(info.param) ? "_streamed" : "");
                         });

// Random weights: post-norms, scaled residuals, shared experts beside and within, biases, groups.
class SplitFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitFamilies, GiveTheLogitsOfTheCpu) {
  const TempDir dir;
  const std::string folder = source_dir() + "/tests/models/synthetic/" + GetParam();
  const auto config = input::HfConfig::parse(read_file(folder + "/config.json"), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {.types = "q8_0", .strong = true});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  const std::vector<int32_t> tokens = {7, 30, 12, 12, 25, 1, 64, 33, 29, 8, 15, 15, 90};
  const auto logits = [&](const std::string& rules, const std::string& prefer) {
    Split split(dir.path("m.gguf"), rules, {"--prefer=" + prefer});
    EXPECT_EQ(split.experts().contains("cuda:0"), rules == kAnyThree);
    runtime::EngineOptions options;
    options.all_logits = true;
    const auto engine = split.open(options);
    std::vector<float> out;
    if (!engine) return out;
    runtime::Sequence sequence = engine->new_sequence();
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 12}, {12, 1}}) {
      const runtime::BatchItem item{&sequence, std::span(tokens).subspan(first, count),
                                    runtime::Want::All};
      const auto done = engine->forward({&item, 1});
      EXPECT_TRUE(done.ok()) << done.error().message;
      for (size_t t = 0; t < count; ++t) {
        const auto row = engine->logits(static_cast<int64_t>(t));
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  };
  const std::vector<float> wanted =
      logits(read_file(source_dir() + "/rules/cpu-only.yaml"), "stream-experts=no");
  ASSERT_FALSE(wanted.empty());
  for (const char* prefer : {"stream-experts=no", "stream-experts=4"}) {
    const std::vector<float> found = logits(kAnyThree, prefer);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(found[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << prefer << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitFamilies,
                         ::testing::Values("ernie4_5_moe", "dots1", "hy_v3", "hunyuan_moe", "olmoe",
                                           "qwen3_vl_moe", "mistral4", "granitemoe",
                                           "granitemoeshared", "bailing_moe_v2", "exaone_moe",
                                           "glm4_moe_air", "solar_open"),
                         [](const auto& info) { return std::string(info.param); });

// The GPU's experts are queued behind the values for the CPU: the CPU does not wait for them.
TEST(SplitExperts, OfTheGpuAreComputedBesideThoseOfTheCpu) {
  Split split(model_gguf("qwen3moe"), kAnyThree, {"--prefer=stream-experts=no"});
  const plan::PlanFile file = plan::PlanFile::open(split.plan()).take();
  const plan::PlanView& plan = file.view();
  const auto& parts = plan.program->parts;
  int layers = 0;
  for (size_t p = 1; p < parts.size(); ++p) {
    if (parts[p].kind != program::Part::Kind::Cpu) continue;
    bool experts = false;
    for (int32_t i = 0; i < parts[p - 1].step_count; ++i) {
      const plan::StepRecord& step = plan.steps[parts[p - 1].first_step + i];
      experts |= step.op == static_cast<uint32_t>(StepOp::ExpertsDown);
      EXPECT_NE(step.op, static_cast<uint32_t>(StepOp::Transfer));
    }
    layers += experts;
  }
  EXPECT_EQ(layers, 3);
  EXPECT_EQ(split.experts(), (std::map<std::string, int>{{"cpu", 15}, {"cuda:0", 9}}));
}

TEST(SplitExperts, GiveTheSameBitsEachTime) {
  Split split(model_gguf("qwen3moe"), kAnyThree, {"--prefer=stream-experts=8"});
  runtime::EngineOptions options;
  options.precision = runtime::Precision::Fast;
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    const auto engine = split.open(options);
    ASSERT_TRUE(engine);
    const std::vector<int32_t> ids = {3, 4, 5, 6, 7, 8, 9, 10, 11};
    runtime::Sequence sequence = engine->new_sequence();
    std::vector<float> logits;
    for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, 8}, {8, 1}}) {
      const runtime::BatchItem item{&sequence, std::span(ids).subspan(begin, count),
                                    runtime::Want::Last};
      ASSERT_TRUE(engine->forward({&item, 1}).ok());
      const auto row = engine->logits(0);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    if (run == 0) first = logits;
    EXPECT_EQ(logits, first);
  }
}

TEST(SplitExperts, KeepEveryBitOfTheGguf) {
  Split split(model_gguf("qwen3moe"), rules_of("{device: cpu, experts: {cuda:0: \"0, 2, 5\"}}"));
  TempDir dir;
  const Finished run =
      run_program({ktx_run(), "inspect", split.plan(), "--export-gguf", dir.path("out.gguf")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_file(dir.path("out.gguf")), read_file(model_gguf("qwen3moe")));
}

// A reader of before would take the numbers of matrices for those of experts.
TEST(SplitExperts, AskForAReaderThatKnowsThem) {
  const auto minor = [](const std::string& rules) {
    Split split(model_gguf("qwen3moe"), rules);
    const std::string bytes = read_file(split.plan());
    plan::Prefix prefix;
    std::memcpy(&prefix, bytes.data(), sizeof(prefix));
    return prefix.min_reader_minor;
  };
  EXPECT_EQ(minor(kAnyThree), 1u);
  EXPECT_EQ(minor(rules_of("{device: cpu}")), 0u);
}

// The counts after passes of some tokens: activations by what computed them, and by expert.
TEST(SplitExperts, AreCountedByWhoServesThemAndByNumber) {
  Split split(model_gguf("qwen3moe"), kAnyThree, {"--prefer=stream-experts=8"});
  Split whole(model_gguf("qwen3moe"), read_file(source_dir() + "/rules/cpu-only.yaml"));
  runtime::EngineOptions options;
  options.count_experts = true;
  const auto engine = split.open(options), on_cpu = whole.open(options);
  ASSERT_TRUE(engine && on_cpu);
  const auto pass = [](runtime::Engine& on, runtime::Sequence& sequence, int64_t tokens) {
    const std::vector<int32_t> ids = {3, 40, 5, 60, 7, 80, 9, 10, 11};
    const runtime::BatchItem item{&sequence, std::span(ids).first(static_cast<size_t>(tokens)),
                                  runtime::Want::Last};
    ASSERT_TRUE(on.forward({&item, 1}).ok());
  };
  runtime::Sequence a = engine->new_sequence(), b = on_cpu->new_sequence();
  for (int64_t tokens : {7, 1, 1}) pass(*engine, a, tokens), pass(*on_cpu, b, tokens);
  // 9 tokens, 3 layers, 3 experts each.
  const runtime::ExpertUse use = engine->stats().expert_use;
  EXPECT_EQ(use.total(), 81);
  EXPECT_EQ(use.streamed, 0);
  const plan::ExpertProfile profile = engine->runner().expert_profile().take();
  EXPECT_EQ(profile.architecture, "qwen3moe");
  EXPECT_EQ(profile.layers, on_cpu->runner().expert_profile()->layers);
  int64_t of_three = 0;
  for (const auto& [layer, counts] : profile.layers) {
    for (size_t e = 0; e < 3; ++e) of_three += static_cast<int64_t>(counts[e]);
  }
  EXPECT_EQ(use.gpu, of_three);
  EXPECT_GT(use.gpu, 0);
  EXPECT_EQ(use.cpu, 81 - of_three);
  EXPECT_EQ(on_cpu->stats().expert_use.cpu, 81);
  // Streamed: the CPU's experts on the GPU.
  pass(*engine, a, 9), pass(*on_cpu, b, 9);
  EXPECT_EQ(engine->stats().expert_use.streamed, 81);
  EXPECT_EQ(engine->stats().expert_use.cpu, use.cpu);
  EXPECT_EQ(engine->runner().expert_profile()->activations(), 162u);
  EXPECT_EQ(engine->runner().expert_profile()->layers, on_cpu->runner().expert_profile()->layers);
}

TEST(SplitExperts, AreNotCountedByNumberUnasked) {
  Split split(model_gguf("qwen3moe"), kAnyThree);
  const auto engine = split.open();
  ASSERT_TRUE(engine);
  EXPECT_THAT(engine->runner().expert_profile().error().message,
              HasSubstr("not counted by expert"));
}

// Whole layers on the GPU, where one kernel chooses and computes.
TEST(SplitExperts, OfWholeLayersAreCountedToo) {
  Split split(model_gguf("qwen3moe"), read_file(source_dir() + "/rules/all-gpu.yaml"));
  runtime::EngineOptions options;
  options.count_experts = true;
  options.precision = runtime::Precision::Fast;
  options.max_batch = 3;
  const auto engine = split.open(options);
  ASSERT_TRUE(engine);
  const std::vector<int32_t> ids = {3, 4};
  runtime::Sequence a = engine->new_sequence(), b = engine->new_sequence();
  for (int i = 0; i < 2; ++i) {
    const runtime::BatchItem one[] = {{&a, std::span(ids).first(1), runtime::Want::Last},
                                      {&b, std::span(ids).last(1), runtime::Want::Last}};
    ASSERT_TRUE(engine->forward(one).ok());
    ASSERT_TRUE(engine->forward({one, 1}).ok());
  }
  // 6 tokens, padding not among them.
  EXPECT_EQ(engine->runner().expert_profile()->activations(), 54u);
  EXPECT_EQ(engine->stats().expert_use.gpu, 54);
}

// From a run to a plan: the file, added up by runs and by the compiler.
TEST(SplitExperts, AreRecordedAddedUpAndPlaced) {
  TempDir dir;
  const std::string plan = dir.path("m.ktxplan"), file = dir.path("use.json");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan,
                         source_dir() + "/rules/cpu-only.yaml"})
                .status,
            0);
  const auto record = [&](const std::string& to) {
    return run_program({ktx_run(), "generate", plan, "--prompt-ids", "3,4,5,6", "-n", "4", "--temp",
                        "0", "--record-experts", to});
  };
  ASSERT_EQ(record(file).status, 0);
  const uint64_t once = plan::read_expert_profile(file)->activations();
  EXPECT_GE(once, 4u * 9);
  ASSERT_EQ(record(file).status, 0);
  EXPECT_EQ(plan::read_expert_profile(file)->activations(), 2 * once);

  const auto compile = [&](const std::vector<std::string>& profiles) {
    std::vector<std::string> command = {ktx_compile(), "-q", model_gguf("qwen3moe"),
                                        dir.write("rules.yaml", kAnyThree),
                                        "--target=" + source_dir() + "/targets/h200.yaml"};
    for (const std::string& profile : profiles) command.push_back("--expert-profile=" + profile);
    command.insert(command.end(), {"-o", dir.path("split.ktxplan")});
    return run_program(command);
  };
  ASSERT_EQ(compile({file, file}).status, 0);
  const Finished said =
      run_program({ktx_compile(), "--estimate", model_gguf("qwen3moe"), dir.path("rules.yaml"),
                   "--expert-profile=" + file, "--target=" + source_dir() + "/targets/h200.yaml"});
  EXPECT_THAT(said.out, HasSubstr("% of the activations by GPUs"));
  const Finished inspected = run_program({ktx_run(), "inspect", dir.path("split.ktxplan")});
  EXPECT_THAT(inspected.out, HasSubstr("% of the activations are expected on GPUs"));
  EXPECT_THAT(inspected.out, HasSubstr("from expert-profile of "));

  // Mistakes.
  const Finished other = record(dir.write("notes.txt", "not a profile"));
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("no profile of experts"));
  const std::string foreign = dir.write("other.json", skewed_profile("mixtral"));
  EXPECT_THAT(record(foreign).err, HasSubstr("record into another file"));
  const Finished refused = compile({foreign});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("but this is qwen3moe"));
  EXPECT_EQ(read_file(foreign), skewed_profile("mixtral"));
}

TEST(SplitExperts, OfAProfileAreTheMostUsed) {
  TempDir dir;
  const std::string profile = dir.write("use.json", skewed_profile("qwen3moe"));
  const Finished run =
      run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), dir.write("rules.yaml", kAnyThree),
                   "--target=" + source_dir() + "/targets/h200.yaml", "--expert-profile=" + profile,
                   "--emit=module-ir"});
  EXPECT_EQ(run.status, 0) << run.err;
  // (900 + 500 + 300) of 1750
  EXPECT_THAT(run.out, HasSubstr("experts cuda:0 \"2,5,7\" use 0.971"));
}

}  // namespace
}  // namespace ktx::testing
