// Plans with GPUs, end to end, without a GPU: compiled for a described machine and run with a
// Gpu in host memory (tests/support/host_gpu.h).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/program/find_fused.h"
#include "lib/runtime/cpu/node_weights.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/gpu/skinny_graphs.h"
#include "lib/runtime/quality/layer_streams.h"
#include "lib/runtime/quality/text_logits.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "lib/runtime/session/session_file.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/ktx-run/bench_kernels.h"
#include "tools/ktx-run/bench_steps.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSomeGpus = R"(name: some
gpus:
  - {{name: A, compute_capability: 9.0, memory_gib: 80, bandwidth_gbps: 3000, pcie_gbps: 50, count: {}}}
cpu: {{isa: avx512, cores: 8, memory_gib: 64, bandwidth_gbps: 100, numa_nodes: 1}}
)";
constexpr const char* kHalfExperts = R"(version: 1
rules:
  - id: experts
    match: {kind: experts, layers: 2..}
    replace: {device: cpu}
    recursive: false
    optional: true
  - id: rest
    match: {name: "."}
    replace: {device: cuda:0}
)";

class Compiled {
 public:
  // `rules` is a file of rules/, or the text of one.
  Compiled(const std::string& model, const std::string& rules, int gpus = 1,
           const std::string& prefer = "") {
    const bool file = rules.ends_with(".yaml");
    const std::string path =
        file ? source_dir() + "/rules/" + rules : dir_.write("rules.yaml", rules);
    const std::string target = gpus == 1 ? source_dir() + "/targets/h200.yaml"
                                         : dir_.write("some.yaml", fmt::format(kSomeGpus, gpus));
    std::vector<std::string> command = {
        ktx_compile(), "-q", model_gguf(model), path, "--target=" + target, "-o", plan()};
    if (!prefer.empty()) command.push_back("--prefer=" + prefer);
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }

  std::unique_ptr<runtime::Engine> open(runtime::EngineOptions options = {},
                                        const HostGpuOptions& gpu = {}) {
    options.threads = options.threads > 0 ? options.threads : 2;
    options.precision = options.precision.value_or(runtime::Precision::Exact);
    options.open_gpu = HostGpu::opener(gpu, &log);
    auto engine = runtime::Engine::open(plan(), options);
    if (!engine) error = engine.error().message;
    return engine ? engine.take() : nullptr;
  }

  // With a cache in F16, which attention by fused ops needs.
  std::unique_ptr<runtime::Engine> open_fast(runtime::EngineOptions options = {}) {
    options.precision = runtime::Precision::Fast;
    return open(std::move(options));
  }

  HostGpuLog log;
  std::string error;

 private:
  TempDir dir_;
};

// How GPUs that compute layers together add up.
enum class Sums { Copied, Host, Peers };
HostGpuOptions gpus_with(Sums sums) {
  return {.adds_up = sums != Sums::Copied, .reaches_others = sums == Sums::Peers};
}

struct Placement {
  const char* name;
  const char* rules;
  int gpus;
  Sums sums = Sums::Copied;
};
const Placement kPlacements[] = {{"all_gpu", "all-gpu.yaml", 1},
                                 {"experts_on_cpu", "moe-experts-on-cpu.yaml", 1},
                                 {"half_of_the_experts", kHalfExperts, 1},
                                 {"two_gpus", "spread-gpus.yaml", 2},
                                 {"two_gpus_experts_on_cpu", "spread-gpus-experts-on-cpu.yaml", 2},
                                 {"two_gpus_together", "split-gpus.yaml", 2},
                                 {"three_gpus_together", "split-gpus.yaml", 3, Sums::Host},
                                 {"four_gpus_together", "split-gpus.yaml", 4, Sums::Peers}};

class MixedPlan : public ::testing::TestWithParam<std::tuple<const char*, Placement>> {};

TEST_P(MixedPlan, GivesTheReferencesTokensInDecodeInChunksAndInBatches) {
  const auto& [model, placement] = GetParam();
  if (test_model_dir(model).empty()) GTEST_SKIP() << "no test model " << model;
  Compiled compiled(model, placement.rules, placement.gpus);
  const nlohmann::json cases = reference_cases(model_dir(model));
  const nlohmann::json few(cases.begin(), cases.begin() + 2);
  runtime::EngineOptions options;
  options.max_batch = 3;
  const auto engine = compiled.open(options, gpus_with(placement.sums));
  ASSERT_TRUE(engine) << compiled.error;
  Comparison result;
  compare_case(*engine, cases[0], 7, result);
  compare_together(*engine, few, result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_LE(result.mean(), 0.002);
  EXPECT_GT(compiled.log.graph_launches, 0);
  EXPECT_GT(compiled.log.fused, 0);
  // Their q, k and v are of formats that no launch takes together, and no layer is dense.
  const bool none = model == std::string("qwen3moe") || model == std::string("minimax_m2");
  EXPECT_EQ(compiled.log.fused_skinny > 0, !none);
}

INSTANTIATE_TEST_SUITE_P(
    All, MixedPlan,
    ::testing::Combine(::testing::Values("llama", "qwen2moe", "qwen3moe", "gpt_oss", "deepseek2",
                                         "glm4_moe", "minimax_m2", "glm4_moe_lite", "qwen3_next",
                                         "qwen35moe", "deepseek_v32"),
                       ::testing::ValuesIn(kPlacements)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
    });

// The fused groups among the steps [0, count).
std::vector<program::FusedGroup> groups_of(const program::Program& program, size_t count) {
  return program::find_fused(program, program::Uses(program), 0, static_cast<int32_t>(count));
}

std::vector<program::FusedGroup> latent_groups(const program::Program& program) {
  auto found = groups_of(program, program.steps.size());
  std::erase_if(found, [](const auto& f) { return f.op != FusedOp::Latent; });
  return found;
}

TEST(GpuPlan, InspectSaysForWhichMachineAndWhatItNeeds) {
  const Compiled whole("llama", "all-gpu.yaml"), spread("llama", "spread-gpus.yaml", 2);
  const Finished one = run_program({ktx_run(), "inspect", whole.plan()});
  EXPECT_THAT(one.out,
              HasSubstr("h200, packed for avx512, requires cuda:0 of compute capability 7.5 "
                        "or newer\n"));
  const Finished two = run_program({ktx_run(), "inspect", spread.plan()});
  EXPECT_THAT(two.out,
              HasSubstr("some, packed for avx512, requires cuda:0 of compute capability 7.5 or "
                        "newer, cuda:1 of compute capability 7.5 or newer\n"));
}

TEST(GpuPlan, ExplainNamesTheGpusThatComputeAModuleTogether) {
  const TempDir dir;
  const Finished explained = run_program(
      {ktx_compile(), "--check", model_gguf("gpt_oss"), source_dir() + "/rules/split-gpus.yaml",
       "--target=" + dir.write("some.yaml", fmt::format(kSomeGpus, 2)), "--explain",
       "model.layers.0.self_attn.o_proj"});
  EXPECT_EQ(explained.status, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("  device  cuda:0, cuda:1, together\n"));
}

TEST(GpuPlan, OneTokenTakesTheStepsOfALayerInAFewLaunches) {
  const std::map<std::string, std::set<FusedOp>> wanted = {
      {"llama", {FusedOp::Products, FusedOp::Attention, FusedOp::GateUp}},
      {"qwen3moe",
       {FusedOp::Products, FusedOp::Attention, FusedOp::RouterProduct, FusedOp::Experts}},
      {"deepseek2",
       {FusedOp::Products, FusedOp::Experts, FusedOp::GateUp, FusedOp::Latent,
        FusedOp::SharedExperts}}};
  for (const auto& [model, kinds] : wanted) {
    Compiled compiled(model, "all-gpu.yaml");
    const plan::PlanFile file = plan::PlanFile::open(compiled.plan()).take();
    const plan::PlanView& plan = file.view();
    const auto groups = groups_of(*plan.program, plan.program->steps.size());
    std::map<FusedOp, std::set<int32_t>> layers;
    std::set<int32_t> seen;
    for (const program::FusedGroup& group : groups) {
      EXPECT_TRUE(std::is_sorted(group.steps.begin(), group.steps.end()));
      layers[group.op].insert(plan.steps[group.steps.back()].layer);
      if (group.op == FusedOp::SharedExperts) continue;  // around others
      for (int32_t i : group.steps) EXPECT_TRUE(seen.insert(i).second) << model << " step " << i;
    }
    const int32_t last = plan.steps[*seen.rbegin()].layer;
    for (FusedOp kind : kinds) {
      EXPECT_EQ(layers[kind].count(last), 1u) << model << " " << name(kind);
    }
    EXPECT_EQ(layers[FusedOp::Products].size(), static_cast<size_t>(last) + 1) << model;
  }
}

// Plans put what the last step of absorbed MLA writes where its query was: the other form reads
// first.
TEST(GpuPlan, LatentAttentionIsFoundWhereItsResultLiesOverItsQuery) {
  for (const char* model : {"deepseek2", "deepseek3"}) {
    Compiled compiled(model, "all-gpu.yaml");
    const plan::PlanFile file = plan::PlanFile::open(compiled.plan()).take();
    plan::PlanView plan = file.view();
    const int64_t layers = std::ssize(plan.kv_slots);
    EXPECT_EQ(std::ssize(latent_groups(*plan.program)), layers) << model;
    std::vector<plan::ValueRecord> values(plan.values.begin(), plan.values.end());
    int64_t moved = 0;
    for (size_t i = 0; i + 2 < values.size(); ++i) {
      if (!plan.string(values[i].name).ends_with(".q_latent")) continue;
      ASSERT_TRUE(plan.string(values[i + 2].name).ends_with(".attn"));
      values[i + 2].buffer = values[i].buffer;
      ++moved;
    }
    EXPECT_EQ(moved, layers) << model;
    plan.values = values;
    EXPECT_EQ(std::ssize(latent_groups(*plan.program)), layers) << model;
  }
}

// The other form takes the query of the first step for what attention reads.
TEST(GpuPlan, LatentAttentionIsNotFoundWhereItReadsAnotherPartOfWhatIsWritten) {
  Compiled compiled("deepseek2", "all-gpu.yaml");
  const plan::PlanFile file = plan::PlanFile::open(compiled.plan()).take();
  const auto found = latent_groups(*file->program);
  ASSERT_FALSE(found.empty());
  for (size_t member : {1u, 2u}) {  // attention, the product of its values
    program::Program changed = *file->program;
    changed.steps[found[0].steps[member]].inputs[0].offset += 32;
    EXPECT_EQ(latent_groups(changed).size(), found.size() - 1);
  }
}

// A pass of many tokens says which of them are of one sequence, so that MLA can take another form.
TEST(GpuPlan, PassesOfManyTokensTellTheRunsOfTheirSequences) {
  Compiled compiled("deepseek2", "all-gpu.yaml");
  runtime::EngineOptions options;
  options.max_batch = 3;
  const auto engine = compiled.open_fast(options);
  ASSERT_TRUE(engine) << compiled.error;
  EXPECT_GT(compiled.log.fused_many, 0);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 80; ++i) ids.push_back(3 + i);
  runtime::Sequence a = engine->new_sequence(), b = engine->new_sequence(),
                    c = engine->new_sequence();
  const runtime::BatchItem before{&b, std::span(ids).first(5), runtime::Want::Last};
  ASSERT_TRUE(engine->forward({&before, 1}).ok());
  EXPECT_TRUE(compiled.log.runs_of_sequences.empty());  // too few tokens
  const runtime::BatchItem items[] = {{&a, std::span(ids).first(70), runtime::Want::Last},
                                      {&b, std::span(ids).first(1), runtime::Want::Last},
                                      {&c, std::span(ids).first(9), runtime::Want::Last}};
  ASSERT_TRUE(engine->forward(items).ok());
  ASSERT_EQ(std::ssize(compiled.log.runs_of_sequences), compiled.log.fused_many);
  const int64_t want[3][3] = {{0, 70, 70}, {70, 1, 6}, {71, 9, 9}};
  for (const auto& runs : compiled.log.runs_of_sequences) {
    ASSERT_EQ(runs.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(runs[i].first, want[i][0]);
      EXPECT_EQ(runs[i].tokens, want[i][1]);
      EXPECT_EQ(runs[i].positions, want[i][2]);
    }
  }
}

// Steps that go together leave values between them unwritten; who asks for each result gets it.
TEST(GpuPlan, ResultsOfStepsAreTheSameInPassesOfFewAndOfManyTokens) {
  constexpr size_t kMany = 20, kFew = 5;
  Compiled compiled("deepseek2", "all-gpu.yaml", 1, "mla=expanded");
  std::map<std::string, std::vector<float>> told;  // when its last step has been
  size_t tokens = 0;
  runtime::EngineOptions options;
  options.on_result = [&](const runtime::StepResult& result) {
    if (result.rows.size() != tokens * static_cast<size_t>(result.stride)) return;  // of the output
    std::vector<float>& values = told[std::string(result.value)];
    values.clear();
    for (size_t t = 0; t < kFew; ++t) {
      const float* row =
          result.rows.data() + static_cast<int64_t>(t) * result.stride + result.begin;
      values.insert(values.end(), row, row + result.width);
    }
  };
  const auto engine = compiled.open_fast(options);
  ASSERT_TRUE(engine) << compiled.error;
  const auto results = [&](size_t count) {
    told.clear();
    tokens = count;
    std::vector<int32_t> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i) + 3);
    runtime::Sequence sequence = engine->new_sequence();
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    EXPECT_TRUE(engine->forward({&item, 1}).ok());
    return told;
  };
  const auto many = results(kMany), few = results(kFew);
  ASSERT_GT(few.size(), 20u);
  ASSERT_EQ(few.size(), many.size());
  for (const auto& [name, values] : few) EXPECT_EQ(values, many.at(name)) << name;
}

// What perplexity and compare take from any placement: logits of all places of a text, and the
// residual stream behind each layer, where layers on a GPU and experts on the CPU take turns.
TEST(MixedPlan, TextsHaveTheirLogitsAndStreamsOnEveryDevice) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 90; ++i) ids.push_back(i * 11 % 2000 + 3);
  std::vector<std::vector<float>> logits[2];
  runtime::LayerStreams streams[2];
  const char* const kRules[2] = {"all-gpu.yaml", "moe-experts-on-cpu.yaml"};
  for (int i = 0; i < 2; ++i) {
    Compiled compiled("qwen3moe", kRules[i]);
    runtime::EngineOptions options;
    options.ctx = 128;
    options.sequence_logits = i == 0 ? 5 : runtime::kScoredRows;
    options.on_result = [&, i](const runtime::StepResult& result) { streams[i].take(result); };
    const auto engine = compiled.open(options);
    ASSERT_TRUE(engine) << compiled.error;
    logits[i].resize(ids.size());
    runtime::TextLogits text(*engine);
    const auto computed =
        text.compute(ids, 85, nullptr, [&, i](int64_t place, std::span<const float> row) {
          logits[i][static_cast<size_t>(place)].assign(row.begin(), row.end());
        });
    ASSERT_TRUE(computed.ok() && *computed == runtime::Forward::Done);
  }
  for (size_t place = 0; place < ids.size(); ++place) {
    ASSERT_EQ(logits[0][place].size(), place < 85 ? 0u : 2048u);
    ASSERT_EQ(logits[1][place].size(), logits[0][place].size());
    for (size_t t = 0; t < logits[0][place].size(); ++t) {
      ASSERT_NEAR(logits[0][place][t], logits[1][place][t], 1e-3) << place;
    }
  }
  runtime::StreamDifferences differences;
  differences.add(streams[0], streams[1]);  // of the last pass, of five tokens by both
  const auto all = differences.all();
  ASSERT_EQ(all.size(), 4u);  // the embedding and three layers
  for (const auto& each : all) EXPECT_LT(each.relative, 1e-4) << each.layer;
}

// A step between two of a fusion that needs what the first of them writes holds them apart.
TEST(GpuPlan, StepsAreNotTakenTogetherAcrossOneThatReadsTheirBuffers) {
  Compiled compiled("llama", "all-gpu.yaml");
  const plan::PlanFile file = plan::PlanFile::open(compiled.plan()).take();
  program::Program program = *file->program;
  const auto before = groups_of(program, program.steps.size());
  const auto gate_up = std::find_if(before.begin(), before.end(),
                                    [](const auto& group) { return group.op == FusedOp::GateUp; });
  ASSERT_NE(gate_up, before.end());
  // Beyond its last step nothing of it is found: its glu is not in the run.
  const auto cut = groups_of(program, static_cast<size_t>(gate_up->steps.back()));
  EXPECT_EQ(std::count_if(cut.begin(), cut.end(),
                          [&](const auto& group) { return group.steps == gate_up->steps; }),
            0);
  // All layers on one buffer: every fusion would write what it reads.
  for (program::Value& value : program.values) value.buffer = 0;
  EXPECT_TRUE(groups_of(program, program.steps.size()).empty());
}

TEST(GpuPlan, StepsWithAndWithoutGraphsGiveTheSameBits) {
  Compiled compiled("qwen3moe", "moe-experts-on-cpu.yaml");
  const std::vector<int32_t> ids = {1, 5, 9, 70, 3, 2, 8};
  std::vector<float> logits[2];
  for (bool graphs : {false, true}) {
    runtime::EngineOptions options;
    options.gpu_graphs = graphs;
    const auto engine = compiled.open(options);
    ASSERT_TRUE(engine) << compiled.error;
    runtime::Sequence sequence = engine->new_sequence();
    for (int32_t id : ids) {
      const runtime::BatchItem item{&sequence, {&id, 1}, runtime::Want::Last};
      ASSERT_TRUE(engine->forward({&item, 1}).ok());
    }
    logits[graphs].assign(engine->logits(0).begin(), engine->logits(0).end());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// Passes of one text run as a graph once their shape has occurred often (skinny_graphs.h).
TEST(GpuPlan, PassesOfAFewTokensGiveTheSameBitsWithAndWithoutGraphs) {
  for (const char* model : {"qwen3moe", "deepseek2", "qwen3_next"}) {
    Compiled compiled(model, "moe-experts-on-cpu.yaml");
    std::vector<std::vector<float>> logits[2];
    for (bool graphs : {false, true}) {
      runtime::EngineOptions options;
      options.gpu_graphs = graphs;
      options.sequence_logits = 16;
      const auto engine = compiled.open(options);
      ASSERT_TRUE(engine) << compiled.error;
      runtime::Sequence sequence = engine->new_sequence();
      for (int round = 0; round < runtime::SkinnyGraphs::kCaptureAt + 3; ++round) {
        const bool compared = round == 0 || round >= runtime::SkinnyGraphs::kCaptureAt - 1;
        if (!compared && !graphs) continue;
        int32_t next = round;
        sequence.truncate(0);
        for (const int32_t count : {4, 2, 16, 4, 5}) {
          std::vector<int32_t> ids;
          for (int32_t i = 0; i < count; ++i) ids.push_back(next++ * 7 % 250 + 3);
          const auto want = count == 5 ? runtime::Want::Last : runtime::Want::All;
          const runtime::BatchItem item{&sequence, ids, want};
          ASSERT_TRUE(engine->forward({&item, 1}).ok());
          const auto row = engine->logits(want == runtime::Want::All ? count - 1 : 0);
          if (compared) logits[graphs].emplace_back(row.begin(), row.end());
        }
      }
    }
    EXPECT_EQ(logits[0], logits[1]) << model;
  }
}

TEST(GpuPlan, APassThatIsEndedLeavesNoBitBehind) {
  for (const Placement& placement : kPlacements) {
    Compiled compiled("qwen3moe", placement.rules, placement.gpus);
    runtime::EngineOptions options;
    options.chunk_tokens = 16;
    const auto engine = compiled.open(options);
    ASSERT_TRUE(engine) << compiled.error;
    const auto session = [&] {
      runtime::SamplingOptions greedy;
      greedy.temperature = 0;
      return runtime::Session(*engine,
                              runtime::Sampler::create(greedy, engine->vocab_size()).take());
    };
    std::vector<int32_t> first, second;
    for (int32_t i = 0; i < 40; ++i) {
      first.push_back(1 + i * 7 % 90);
      second.push_back(1 + i * 11 % 80);
    }
    runtime::Session plain = session();
    ASSERT_EQ(plain.set_prompt(second).take(), runtime::Outcome::Ok);
    const std::vector<float> expected(plain.logits().begin(), plain.logits().end());
    int ends = 0;
    for (int place = 0; place < 1000; ++place) {
      runtime::Session ended = session();
      std::atomic<bool> stop = false;
      int seen = 0;
      ended.watch(&stop, [&](double, int64_t) { stop = stop || seen++ == place; });
      const runtime::Outcome outcome = ended.set_prompt(first).take();
      // What is queued on a GPU last is not ended any more.
      if (!stop) break;
      ends += outcome == runtime::Outcome::Stopped;
      stop = false;
      ASSERT_EQ(ended.set_prompt(second).take(), runtime::Outcome::Ok);
      ASSERT_EQ(std::vector<float>(ended.logits().begin(), ended.logits().end()), expected)
          << placement.name << ", ended at place " << place;
    }
    EXPECT_GE(ends, 2) << placement.name;
  }
}

TEST(GpuPlan, StepsAreTimedOnAllDevices) {
  Compiled compiled("qwen3moe", "moe-experts-on-cpu.yaml");
  const auto engine = compiled.open();
  ASSERT_TRUE(engine) << compiled.error;
  engine->runner().enable_times(true);
  runtime::Sequence sequence = engine->new_sequence();
  const std::vector<int32_t> ids = {1, 5, 9};
  const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
  ASSERT_TRUE(engine->forward({&item, 1}).ok());
  const plan::PlanView& plan = engine->plan();
  std::set<std::string> devices;
  int64_t last = -1;
  for (const runtime::StepTime& time : engine->runner().step_times()) {
    EXPECT_GT(time.step, last);
    last = time.step;
    const plan::StepRecord& step = plan.steps[time.step];
    if (step.op == static_cast<uint32_t>(StepOp::Transfer)) continue;
    EXPECT_EQ(time.runs, 1) << time.module << " " << time.op;
    EXPECT_EQ(time.tokens, 3);
    devices.emplace(plan.string(step.device));
  }
  EXPECT_THAT(devices, ::testing::ElementsAre("cpu", "cuda:0"));
}

TEST(GpuPlan, KernelsAreTimedAtTheShapeOfTheLastRun) {
  Compiled compiled("qwen3moe", "moe-experts-on-cpu.yaml");
  const auto engine = compiled.open();
  ASSERT_TRUE(engine) << compiled.error;
  std::vector<uint32_t> on_gpu;
  const plan::PlanView& plan = engine->plan();
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].op != static_cast<uint32_t>(StepOp::RmsNorm)) continue;
    if (plan.string(plan.steps[i].device) != "cpu") on_gpu.push_back(i);
  }
  ASSERT_FALSE(on_gpu.empty());
  EXPECT_FALSE(engine->runner().time_steps(on_gpu).ok()) << "before any run";
  runtime::Sequence sequence = engine->new_sequence();
  const std::vector<int32_t> ids = {1, 5, 9};
  const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
  ASSERT_TRUE(engine->forward({&item, 1}).ok());
  const auto time = engine->runner().time_steps(on_gpu);
  ASSERT_TRUE(time.ok()) << time.error().message;
  EXPECT_EQ(time->tokens, 3);
  EXPECT_EQ(time->outputs, 1);
  EXPECT_GT(time->seconds, 0);
  const std::vector<uint32_t> experts = {1u << 20};
  EXPECT_FALSE(engine->runner().time_steps(experts).ok()) << "no such step";
}

std::vector<int32_t> answer(runtime::Session& session, int tokens) {
  std::vector<int32_t> ids;
  for (int i = 0; i < tokens; ++i) {
    const auto next = session.next();
    EXPECT_TRUE(next.ok()) << next.error().message;
    ids.push_back(next->id);
  }
  return ids;
}

TEST(GpuPlan, OnlyTheBestLogitsComeBackAndGiveTheSameTokens) {
  Compiled compiled("llama", "all-gpu.yaml");
  const std::vector<int32_t> prompt = {1, 5, 9, 70, 3, 2, 8};
  for (const float temperature : {0.0f, 0.9f}) {
    std::vector<int32_t> ids[2];
    uint64_t bytes[2];
    for (const bool all : {false, true}) {
      const auto engine = compiled.open();
      ASSERT_TRUE(engine) << compiled.error;
      runtime::SamplingOptions sampling;
      sampling.temperature = temperature;
      sampling.seed = 4;
      runtime::Session session(*engine,
                               runtime::Sampler::create(sampling, engine->vocab_size()).take());
      session.keep_logits(all);
      compiled.log.downloaded_bytes = 0;
      ASSERT_TRUE(session.set_prompt(prompt).ok());
      ids[all] = answer(session, 20);
      bytes[all] = compiled.log.downloaded_bytes;
      EXPECT_EQ(session.logits().empty(), !all);
      if (all) continue;
      // More is wanted than the last step brought: it is computed once more.
      ASSERT_TRUE(session.set_prompt(prompt).ok());
      session.keep_logits(true);
      EXPECT_TRUE(session.logits().empty());
      answer(session, 1);
      EXPECT_FALSE(session.logits().empty());
    }
    EXPECT_EQ(ids[0], ids[1]);
    const uint64_t tokens = temperature == 0 ? 1 : 40;
    EXPECT_EQ(bytes[0], 20 * (8 + 8 * tokens));
    EXPECT_GT(bytes[1], bytes[0]);
  }
}

// Allows even tokens only.
class EvenTokens final : public runtime::TokenFilter {
  Result<runtime::TokenBits> allowed() override { return runtime::TokenBits(bits_); }
  Status accept(int32_t id) override { return id % 2 == 0 ? Status{} : Status(Error{"odd"}); }
  std::vector<uint32_t> bits_ = std::vector<uint32_t>(10000, 0x55555555);
};

// Allows one token only, seldom among the best.
class OneToken final : public runtime::TokenFilter {
 public:
  explicit OneToken(int32_t id) : id_(id), bits_(static_cast<size_t>(id / 32 + 1)) {
    bits_.back() = 1u << (id % 32);
  }
  Result<runtime::TokenBits> allowed() override { return runtime::TokenBits(bits_); }
  Status accept(int32_t id) override { return id == id_ ? Status{} : Status(Error{"another"}); }

 private:
  int32_t id_;
  std::vector<uint32_t> bits_;
};

// Tokens of a request with a filter, and the bytes that came back for them.
struct Filtered {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
  uint64_t bytes = 0;
};
Filtered filtered(Compiled& compiled, runtime::Engine& engine, runtime::SamplingOptions sampling,
                  std::unique_ptr<runtime::TokenFilter> filter, int logprobs = 0) {
  Filtered result;
  const uint64_t before = compiled.log.downloaded_bytes;
  runtime::BatchScheduler scheduler(engine, {});
  runtime::GenerationRequest request;
  request.prompt = {1, 5, 9};
  request.max_tokens = 8;
  request.sampling = std::move(sampling);
  request.filter = std::move(filter);
  request.logprobs = logprobs;
  request.on_token = [&](const runtime::TokenEvent& token) {
    result.ids.push_back(token.id);
    result.logprobs.push_back(token.logprobs->logprob);
    return true;
  };
  request.on_end = [](const runtime::RequestEnd& end) { EXPECT_EQ(end.error, ""); };
  runtime::BatchScheduler::Refused refused;
  EXPECT_NE(scheduler.submit(std::move(request), &refused), 0u) << refused.message;
  EXPECT_TRUE(scheduler.wait_idle(std::chrono::seconds(60)));
  result.bytes = compiled.log.downloaded_bytes - before;
  return result;
}

TEST(GpuPlan, OnlyTheBestThatAFilterAllowsComeBack) {
  Compiled compiled("llama", "all-gpu.yaml");
  const auto engine = compiled.open();
  ASSERT_TRUE(engine) << compiled.error;
  const auto row_bytes = static_cast<uint64_t>(engine->vocab_size()) * 4;
  runtime::SamplingOptions drawn;
  drawn.seed = 5;
  for (const runtime::SamplingOptions& sampling : {runtime::greedy_sampling(), drawn}) {
    // A bias of nothing makes all logits come.
    runtime::SamplingOptions with_all = sampling;
    with_all.logit_bias = {{0, 0.0f}};
    const Filtered best = filtered(compiled, *engine, sampling, std::make_unique<EvenTokens>());
    const Filtered all = filtered(compiled, *engine, with_all, std::make_unique<EvenTokens>());
    EXPECT_EQ(best.ids, all.ids);
    for (size_t i = 0; i < best.logprobs.size(); ++i) {
      EXPECT_NEAR(best.logprobs[i], all.logprobs[i], 1e-5) << "among all tokens";
    }
    const uint64_t tokens = sampling.temperature == 0 ? 1 : 40;
    EXPECT_EQ(best.bytes, 8 * (8 + 8 * tokens));
    EXPECT_GE(all.bytes, 8 * row_bytes);

    const int32_t rare = static_cast<int32_t>(engine->vocab_size()) - 3;
    const Filtered one = filtered(compiled, *engine, sampling, std::make_unique<OneToken>(rare));
    EXPECT_EQ(one.ids, std::vector<int32_t>(8, rare));
    EXPECT_EQ(one.bytes, best.bytes);

    // The best log-probabilities cover all tokens, also those that the filter excludes.
    const Filtered told = filtered(compiled, *engine, sampling, std::make_unique<EvenTokens>(), 2);
    EXPECT_EQ(told.ids, best.ids);
    EXPECT_GE(told.bytes, 8 * row_bytes);
  }
}

TEST(GpuPlan, RequestsOfOneBatchGetBestLogitsOrAllAsTheyNeed) {
  Compiled compiled("llama", "all-gpu.yaml");
  runtime::EngineOptions engine_options;
  engine_options.max_batch = 3;
  std::vector<std::vector<int32_t>> expected;
  for (const bool together : {false, true}) {
    const auto engine = compiled.open(engine_options);
    ASSERT_TRUE(engine) << compiled.error;
    std::vector<std::vector<int32_t>> ids(3);
    std::vector<double> logprobs;
    {
      runtime::BatchScheduler scheduler(*engine, {});
      for (int i = 0; i < 3; ++i) {
        runtime::GenerationRequest request;
        request.prompt = {1, 5, 9 + i};
        request.max_tokens = 8;
        request.sampling = i == 0 ? runtime::greedy_sampling() : runtime::SamplingOptions();
        if (i == 1) request.filter = std::make_unique<EvenTokens>();
        if (i == 2) request.logprobs = 3;
        request.on_token = [&, i](const runtime::TokenEvent& token) {
          ids[i].push_back(token.id);
          if (token.logprobs) {
            EXPECT_EQ(token.logprobs->top.size(), 3u);
            logprobs.push_back(token.logprobs->logprob);
          }
          return true;
        };
        request.on_end = [](const runtime::RequestEnd& end) { EXPECT_EQ(end.error, ""); };
        runtime::BatchScheduler::Refused refused;
        EXPECT_NE(scheduler.submit(std::move(request), &refused), 0u) << refused.message;
        if (!together) {
          EXPECT_TRUE(scheduler.wait_idle(std::chrono::seconds(60)));
        }
      }
      EXPECT_TRUE(scheduler.wait_idle(std::chrono::seconds(60)));
    }
    for (double logprob : logprobs) EXPECT_LE(logprob, 0);
    EXPECT_EQ(logprobs.size(), ids[2].size());
    EXPECT_GE(ids[2].size(), 1u);
    if (together) {
      EXPECT_EQ(ids, expected);
    } else {
      expected = ids;
    }
  }
}

// The log-probabilities of the prompt's tokens; no answer is generated.
std::vector<runtime::Logprobs> prompt_logprobs(runtime::Engine& engine,
                                               const std::vector<int32_t>& prompt) {
  std::vector<runtime::Logprobs> told;
  runtime::BatchScheduler scheduler(engine, {});
  runtime::GenerationRequest request;
  request.prompt = prompt;
  request.max_tokens = 0;
  request.tell_end = true;
  request.sampling = runtime::greedy_sampling();
  request.prompt_logprobs = 2;
  request.on_prompt_logprobs = [&](int64_t position, const runtime::Logprobs& logprobs) {
    told.push_back(logprobs);
    EXPECT_EQ(position, static_cast<int64_t>(told.size())) << "the first token has none";
  };
  request.on_end = [](const runtime::RequestEnd& end) { EXPECT_EQ(end.error, ""); };
  runtime::BatchScheduler::Refused refused;
  EXPECT_NE(scheduler.submit(std::move(request), &refused), 0u) << refused.message;
  EXPECT_TRUE(scheduler.wait_idle(std::chrono::seconds(60)));
  return told;
}

TEST(GpuPlan, PromptsAreScoredAsOnTheCpu) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 150; ++i) prompt.push_back(i * 37 % 500);
  Compiled on_cpu("qwen3moe", "cpu-only.yaml");
  const auto cpu = on_cpu.open();
  ASSERT_TRUE(cpu) << on_cpu.error;
  const std::vector<runtime::Logprobs> expected = prompt_logprobs(*cpu, prompt);
  ASSERT_EQ(expected.size(), prompt.size() - 1);
  for (const Placement& placement : kPlacements) {
    SCOPED_TRACE(placement.name);
    Compiled compiled("qwen3moe", placement.rules, placement.gpus);
    const auto engine = compiled.open();
    ASSERT_TRUE(engine) << compiled.error;
    const std::vector<runtime::Logprobs> told = prompt_logprobs(*engine, prompt);
    ASSERT_EQ(told.size(), expected.size());
    for (size_t i = 0; i < told.size(); ++i) {
      EXPECT_NEAR(told[i].logprob, expected[i].logprob, 1e-4) << "token " << i + 1;
      ASSERT_EQ(told[i].top.size(), 2u);
      EXPECT_NEAR(told[i].top[0].logprob, expected[i].top[0].logprob, 1e-4) << "token " << i + 1;
    }
  }
}

TEST(GpuPlan, TheTableOfKernelsHasARowForEveryKind) {
  Compiled compiled("qwen3moe", "all-gpu.yaml");
  const auto engine = compiled.open_fast();
  ASSERT_TRUE(engine) << compiled.error;
  // Steps of up to 96 tokens that go together have one row.
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>(100, 3), {1, 5, 9}, {7}}) {
    runtime::Sequence sequence = engine->new_sequence();
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    ASSERT_TRUE(engine->forward({&item, 1}).ok());
    const auto table = tools::kernels_table(*engine, 1e12);
    ASSERT_TRUE(table.ok()) << table.error().message;
    EXPECT_THAT(*table, HasSubstr("| kernel, " + std::to_string(ids.size()) + " tokens"));
    for (const char* kind : {"| experts_gate_up experts Q4_K", "| matmul lm_head", "| sum"}) {
      EXPECT_THAT(*table, HasSubstr(kind));
    }
    EXPECT_EQ(table->find("| kv_store ") != std::string::npos, ids.size() > 96) << *table;
    EXPECT_EQ(table->find("| attention self_attn (") != std::string::npos, ids.size() <= 96);
  }
}

TEST(GpuPlan, TheTableOfKernelsCountsWhatAttentionReads) {
  for (const char* model : {"llama", "gemma3"}) {
    Compiled compiled(model, "all-gpu.yaml");
    const auto engine = compiled.open_fast();
    ASSERT_TRUE(engine) << compiled.error;
    const program::Program& program = *engine->plan().program;
    const std::vector<runtime::SequenceRun> runs = {{0, 3, 100}, {3, 1, 2}};
    int windows = 0;
    for (const program::Step& step : program.steps) {
      const tools::CacheWork work = tools::cache_work(program, step, plan::KvType::F16, runs);
      if (step.op != StepOp::Attention) {
        EXPECT_EQ(work.bytes + work.ops, 0);
        continue;
      }
      const auto a = std::get<AttentionAttrs>(step.attrs);
      // The queries are at positions 97, 98 and 99 of one text and at position 1 of the other.
      const int64_t seen = a.window > 0 ? 3 * a.window + 2 : 98 + 99 + 100 + 2;
      const int64_t read = a.window > 0 ? a.window + 2 + 2 : 100 + 2;
      windows += a.window > 0;
      EXPECT_EQ(work.ops, 2.0 * a.heads * (a.key_dim + a.value_dim) * static_cast<double>(seen));
      EXPECT_EQ(work.bytes,
                2.0 * a.kv_heads * (a.key_dim + a.value_dim) * static_cast<double>(read));
    }
    EXPECT_EQ(windows > 0, std::string_view(model) == "gemma3");
  }
}

TEST(GpuPlan, TheTableOfKernelsHasOneRowForAllStepsOfLatentAttention) {
  Compiled compiled("deepseek2", "all-gpu.yaml", 1, "mla=expanded");
  const auto engine = compiled.open_fast();
  ASSERT_TRUE(engine) << compiled.error;
  const std::vector<int32_t> ids(20, 3);
  runtime::Sequence sequence = engine->new_sequence();
  const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
  ASSERT_TRUE(engine->forward({&item, 1}).ok());
  const auto table = tools::kernels_table(*engine, 1e12);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_THAT(*table, HasSubstr("| matmul_heads"));
  EXPECT_THAT(*table, HasSubstr("(3 steps)"));
  EXPECT_THAT(*table, Not(HasSubstr("| attention")));
}

TEST(GpuPlan, TooSmallAGpuIsToldBeforeAnythingIsUploaded) {
  Compiled compiled("llama", "all-gpu.yaml");
  EXPECT_FALSE(compiled.open({}, {.memory_bytes = 528 << 20}));
  EXPECT_EQ(compiled.log.uploaded_bytes, 0u);
  for (const char* part :
       {"cuda:0 (host-gpu 0) does not hold", "weights", "KV cache", "free", "missing", "ways out",
        "--ctx", "ktx-compile model.ktxplan -o model.ktxplan", "moe-experts-on-cpu.yaml"}) {
    EXPECT_THAT(compiled.error, HasSubstr(part));
  }
}

// Only the CPU's part is spread: GPUs have their own memory. Each expert's matrices are cut so that
// all nodes have work whichever experts are chosen.
TEST(GpuPlan, WeightsOfTheCpuAreSpreadOverMadeUpNodes) {
  Compiled compiled("qwen3moe", "moe-experts-on-cpu.yaml");
  const plan::PlanFile file = plan::PlanFile::open(compiled.plan()).take();
  const plan::PlanView& plan = file.view();
  uint64_t experts = 0;
  std::set<uint32_t> counted;
  for (const plan::StepRecord& step : plan.steps) {
    const auto op = static_cast<StepOp>(step.op);
    if (op != StepOp::ExpertsGateUp && op != StepOp::ExpertsDown) continue;
    ASSERT_EQ(plan.string(step.device), "cpu");
    for (const uint32_t blob : plan.weights(step)) {
      if (blob != plan::kNone && counted.insert(blob).second) experts += plan.blobs[blob].size;
    }
  }
  for (const int nodes : {2, 3, 4}) {
    std::vector<uint64_t> bytes(static_cast<size_t>(nodes));
    for (const runtime::NodeRun& run : runtime::split_weights(plan, nodes)) {
      bytes[static_cast<size_t>(run.share)] += run.bytes.size();
      EXPECT_TRUE(std::ranges::any_of(plan.segments, [&](const plan::SegmentRecord& segment) {
        const std::byte* const begin = plan.file.data() + segment.offset;
        return plan.string(segment.device) == "cpu" && run.bytes.data() >= begin &&
               run.bytes.data() + run.bytes.size() <= begin + segment.size;
      }));
    }
    const auto [least, most] = std::ranges::minmax_element(bytes);
    EXPECT_LE(*most - *least, experts / 100) << nodes << " nodes";
    EXPECT_GE(*least * static_cast<uint64_t>(nodes), experts * 99 / 100);
  }
}

// The workspace is asked of the steps, so that the check of the plan's needs does not see all of
// it.
TEST(GpuPlan, AWorkspaceThatFindsNoMemoryIsToldBeforeAnythingIsUploaded) {
  Compiled compiled("deepseek2", "all-gpu.yaml");
  runtime::EngineOptions options;
  options.chunk_tokens = 96;
  EXPECT_FALSE(compiled.open(options, {.refused = "partial results"}));
  EXPECT_EQ(compiled.log.uploaded_bytes, 0u);
  EXPECT_THAT(compiled.error,
              HasSubstr("cuda:0: partial results: out of memory; chunks of 96 tokens "
                        "need it: a smaller --chunk needs less"));
}

TEST(GpuPlan, AnOldCardIsRefusedWithItsGeneration) {
  Compiled compiled("llama", "all-gpu.yaml");
  EXPECT_FALSE(compiled.open({}, {.compute_major = 7}));
  EXPECT_THAT(compiled.error, HasSubstr("has compute capability 7.0, and kernels exist for 7.5"));
}

TEST(GpuPlan, ALostGpuIsAnErrorThatNamesStepAndModuleAndStays) {
  Compiled compiled("llama", "all-gpu.yaml");
  runtime::EngineOptions options;
  options.gpu_graphs = false;
  const auto engine = compiled.open(options, {.fail_at_launch = 5});
  ASSERT_TRUE(engine) << compiled.error;
  runtime::Sequence sequence = engine->new_sequence();
  const int32_t id = 3;
  const runtime::BatchItem item{&sequence, {&id, 1}, runtime::Want::Last};
  const auto first = engine->forward({&item, 1});
  ASSERT_FALSE(first.ok());
  EXPECT_THAT(first.error().message, HasSubstr("cuda:0: step "));
  EXPECT_THAT(first.error().message, HasSubstr("model.layers.0."));
  EXPECT_THAT(first.error().message, HasSubstr("the GPU is lost"));
  EXPECT_EQ(sequence.length(), 0);
  const auto second = engine->forward({&item, 1});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("start the program again"));
}

TEST(GpuPlan, CheckFiniteNamesTheModuleThatOverflows) {
  Compiled compiled("llama", "all-gpu.yaml");
  runtime::EngineOptions options;
  options.check_finite = true;
  int64_t captured_steps = 0;
  const std::vector<int32_t> ids = {1, 5, 9};
  for (const int64_t overflow : {-1, 2}) {
    compiled.log = {};
    const auto engine =
        compiled.open(options, {.overflow_at_launch = overflow < 0 ? -1 : captured_steps + 2});
    ASSERT_TRUE(engine) << compiled.error;
    captured_steps = compiled.log.launches;
    runtime::Sequence sequence = engine->new_sequence();
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    const auto done = engine->forward({&item, 1});
    EXPECT_EQ(done.ok(), overflow < 0);
    if (done.ok()) continue;
    EXPECT_THAT(done.error().message, HasSubstr("(matmul of model.layers.0.self_attn.q_proj)"));
    EXPECT_THAT(done.error().message, HasSubstr("row 0, element 0 of 'L0.q' is inf"));
  }
}

TEST(GpuPlan, WithoutADriverTheMessageSaysWhatIsMissing) {
  Compiled compiled("llama", "all-gpu.yaml");
  const Finished run = run_program({ktx_run(), "generate", compiled.plan(), "--prompt", "a"}, "",
                                   {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cuda:0: "));
  EXPECT_THAT(run.err, HasSubstr("compile the plan for the CPU"));
}

// Keys and values of all devices go into the file and back, and the final norm's rows come
// from the GPU.
TEST_P(MixedPlan, SessionsAndHiddenRowsCrossToTheHost) {
  const auto& [model, placement] = GetParam();
  Compiled compiled(model, placement.rules, placement.gpus);
  const TempDir dir;
  std::vector<int32_t> ids;
  for (int i = 0; i < 90; ++i) ids.push_back(i * 7 % 200 + 3);
  std::vector<float> expected, hidden, other;
  for (const bool again : {false, true}) {
    const auto engine = compiled.open();
    ASSERT_TRUE(engine) << compiled.error;
    runtime::Sequence sequence = engine->new_sequence();
    if (again) {
      const auto loaded = runtime::load_session(dir.path("s"), *engine, sequence);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      EXPECT_EQ(sequence.length(), 89);
    } else {
      const std::span<const int32_t> most = std::span(ids).first(89);
      const runtime::BatchItem item{&sequence, most, runtime::Want::None};
      ASSERT_TRUE(engine->forward({&item, 1}).ok());
      runtime::SavedSession saved_text;
      saved_text.tokens = ids;
      const Status saved = runtime::save_session(dir.path("s"), *engine, saved_text, sequence);
      ASSERT_TRUE(saved.ok()) << saved.error().message;
    }
    const runtime::BatchItem item{&sequence, std::span(ids).last(1), runtime::Want::Last};
    ASSERT_TRUE(engine->forward({&item, 1}).ok());
    std::vector<float>& row = again ? other : hidden;
    row.resize(static_cast<size_t>(engine->hidden_size()));
    const Status read = engine->hidden(0, row);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const std::vector<float> logits(engine->logits(0).begin(), engine->logits(0).end());
    if (again) {
      EXPECT_EQ(logits, expected);
    }
    expected = logits;
  }
  EXPECT_EQ(hidden, other);
  EXPECT_TRUE(std::any_of(hidden.begin(), hidden.end(), [](float x) { return x != 0; }));
}

}  // namespace
}  // namespace ktx::testing
