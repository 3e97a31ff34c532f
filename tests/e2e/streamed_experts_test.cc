// Prompts whose experts a GPU streams from main memory, without a GPU: with the Gpu in host memory
// (tests/support/host_gpu.h), forced on for passes of few tokens.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/stream_memory.h"
#include "lib/program/verify_launches.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Matches;

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

class Streamed {
 public:
  Streamed(const std::string& model, const std::string& rules, const std::string& prefer,
           const std::string& target = "targets/h200.yaml", const std::string& vram = "") {
    const std::string path = rules.ends_with(".yaml") ? source_dir() + "/rules/" + rules
                                                      : dir_.write("rules.yaml", rules);
    std::vector<std::string> call{ktx_compile(),
                                  "-q",
                                  model_gguf(model),
                                  path,
                                  "--target=" + source_dir() + "/" + target,
                                  "--prefer=" + prefer,
                                  "-o",
                                  plan()};
    if (!vram.empty()) call.insert(call.end(), {"--vram", vram, "--ctx", "256"});
    const Finished run = run_program(call);
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }

  std::unique_ptr<runtime::Engine> open(runtime::EngineOptions options = {},
                                        const HostGpuOptions& gpu = {}) {
    options.threads = 2;
    options.precision = options.precision.value_or(runtime::Precision::Exact);
    options.open_gpu = HostGpu::opener(gpu, &log);
    auto engine = runtime::Engine::open(plan(), options);
    if (!engine) error = engine.error().message;
    return engine ? engine.take() : nullptr;
  }

  HostGpuLog log;
  std::string error;

 private:
  TempDir dir_;
};

class StreamedModel
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(StreamedModel, GivesTheReferencesTokensInChunksAndInBatches) {
  const auto& [model, rules, joint] = GetParam();
  if (test_model_dir(model).empty()) GTEST_SKIP() << "no test model " << model;
  Streamed streamed(model, rules, std::string("stream-experts=4") + joint);
  const nlohmann::json cases = reference_cases(model_dir(model));
  const nlohmann::json few(cases.begin(), cases.begin() + 2);
  runtime::EngineOptions options;
  options.max_batch = 3;
  const auto engine = streamed.open(options);
  ASSERT_TRUE(engine) << streamed.error;
  Comparison result;
  for (const auto& one : few) compare_case(*engine, one, 7, result);
  compare_together(*engine, few, result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_LE(result.mean(), 0.002);
  EXPECT_GT(streamed.log.retiles, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, StreamedModel,
    ::testing::Combine(::testing::Values("qwen2moe", "qwen3moe", "deepseek2", "deepseek3",
                                         "glm4_moe", "mixtral", "minimax_m2", "glm4_moe_lite",
                                         "gpt_oss"),
                       ::testing::Values("moe-experts-on-cpu.yaml", kHalfExperts),
                       ::testing::Values("", ",joint-experts=8")),
    [](const auto& info) {
      const bool all = std::string(std::get<1>(info.param)).ends_with(".yaml");
      const bool joint = *std::get<2>(info.param) != 0;
      return std::string(std::get<0>(info.param)) + (all ? "_all" : "_half") +
             (joint ? "_joint" : "");
    });

// There are 8 experts; a pass of 7 tokens takes the CPU as long as the copy of all of them.
TEST(StreamedExperts, AreDividedWithTheCpuInShortPasses) {
  Streamed streamed("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=4,joint-experts=7");
  const auto engine = streamed.open();
  ASSERT_TRUE(engine) << streamed.error;
  const std::vector<int32_t> ids = {3, 40, 5, 60, 7, 80, 9, 100, 11, 120, 13};
  const auto pass = [&](size_t tokens) {
    const runtime::ExpertUse before = engine->stats().expert_use;
    const uint64_t bytes = streamed.log.uploaded_bytes;
    runtime::Sequence sequence = engine->new_sequence();
    std::vector<int32_t> text;
    while (text.size() < tokens) text.push_back(ids[text.size() % ids.size()]);
    const runtime::BatchItem item{&sequence, text, runtime::Want::Last};
    EXPECT_TRUE(engine->forward({&item, 1}).ok());
    const runtime::ExpertUse& now = engine->stats().expert_use;
    EXPECT_EQ(now.total() - before.total(), static_cast<int64_t>(tokens) * 9);
    return std::tuple(now.cpu - before.cpu, now.streamed - before.streamed,
                      streamed.log.uploaded_bytes - bytes);
  };
  const auto [cpu, gpu, half] = pass(7);
  EXPECT_GT(cpu, 0);
  EXPECT_GT(gpu, 0);
  const auto [few_cpu, most_gpu, most] = pass(40);
  EXPECT_GT(few_cpu, 0);
  EXPECT_GT(most_gpu, few_cpu);
  EXPECT_GT(most, half);
  const auto [none, all, whole] = pass(50);  // more than 7 times 7
  EXPECT_EQ(none, 0);
  EXPECT_GT(all, 0);
  EXPECT_GT(whole, most);
}

TEST(StreamedExperts, AreStreamedByTheGpuOfTheirLayer) {
  Streamed streamed("qwen3moe", "spread-gpus-experts-on-cpu.yaml", "stream-experts=4",
                    "tests/gpu/two-h200.yaml");
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  std::set<std::string> devices;
  for (const program::Stream& stream : file->streams) devices.insert(stream.device);
  EXPECT_EQ(devices.size(), 2u);
  const auto engine = streamed.open();
  ASSERT_TRUE(engine) << streamed.error;
  const nlohmann::json cases = reference_cases(model_dir("qwen3moe"));
  Comparison result;
  for (size_t i = 0; i < 3; ++i) compare_case(*engine, cases[i], 7, result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_GT(streamed.log.retiles, 0);
}

// Without a preference: where the machine's rates say that it pays.
TEST(StreamedExperts, AreStreamedByThemselvesFromWhereItPays) {
  Streamed streamed("qwen3moe", "moe-experts-on-cpu.yaml", "cublas=no");
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  const auto all = plan::memory_by_device(file.view(), {.ctx = 256, .step_tokens = 4096});
  EXPECT_GT((*all)[1].stream_bytes, 0u);
}

int64_t layers_of(const plan::PlanView& plan) {
  return std::ssize(plan.streams);
}

// The products of a layer: gate, up and down.
TEST(StreamedExperts, AreFetchedOnceAPassFromTheThresholdOn) {
  Streamed streamed("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=6");
  const auto engine = streamed.open();
  ASSERT_TRUE(engine) << streamed.error;
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  const int64_t layers = layers_of(file.view());
  ASSERT_GT(layers, 0);
  const std::vector<int32_t> ids = {3, 4, 5, 6, 7, 8, 9};
  runtime::Sequence sequence = engine->new_sequence();
  const auto pass = [&](size_t tokens) {
    const int64_t before = streamed.log.retiles;
    const runtime::BatchItem item{&sequence, std::span(ids).first(tokens), runtime::Want::Last};
    EXPECT_TRUE(engine->forward({&item, 1}).ok());
    return streamed.log.retiles - before;
  };
  EXPECT_EQ(pass(5), 0);
  EXPECT_EQ(pass(6), 3 * layers);
  EXPECT_EQ(pass(1), 0);
  EXPECT_EQ(pass(7), 3 * layers);
}

TEST(StreamedExperts, ArePartOfTheMemoryThatAPlanAsksFor) {
  Streamed with("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=64"),
      without("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=no");
  const plan::PlanFile a = plan::PlanFile::open(with.plan()).take(),
                       b = plan::PlanFile::open(without.plan()).take();
  const auto bytes = [](const plan::PlanFile& file, int64_t tokens) {
    const auto all = plan::memory_by_device(file.view(), {.ctx = 256, .step_tokens = tokens});
    return (*all)[1].stream_bytes;
  };
  EXPECT_EQ(bytes(b, 128), 0u);
  EXPECT_EQ(bytes(a, 63), 0u);  // no pass streams
  EXPECT_GT(bytes(a, 64), 0u);
  EXPECT_GT(bytes(a, 128), bytes(a, 64));
  // Two layers of panels and one of tiles, all of Q4_K or Q6_K: at least three times a layer's.
  uint64_t most = 0;
  for (const program::Stream& stream : a->streams) {
    uint64_t sum = 0;
    for (int32_t blob : stream.products) sum += a.view().blobs[blob].size;
    most = std::max(most, sum);
  }
  EXPECT_GE(bytes(a, 64), 3 * most);
  EXPECT_EQ(layers_of(b.view()), 0);
}

// With room for whole layers, for a matrix at a time, for parts of one, and for none: each time as
// much as the formulas ask for, and a byte less.
class StreamedSlots : public ::testing::TestWithParam<const char*> {};

TEST_P(StreamedSlots, AreTheLargestThatFitAndGiveTheReferencesTokens) {
  const std::string model = GetParam();
  if (test_model_dir(model).empty()) GTEST_SKIP() << "no test model " << model;
  Streamed streamed(model, "moe-experts-on-cpu.yaml", "stream-experts=4");
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  const plan::RunShape shape = {.ctx = 256, .step_tokens = 64, .kv_type = plan::KvType::F32};
  const auto need = [&](plan::StreamSlots slots) {
    return (*plan::memory_by_device(file.view(), shape, slots))[1];
  };
  runtime::EngineOptions options;
  options.ctx = shape.ctx;
  options.chunk_tokens = shape.step_tokens;
  const uint64_t reserve = uint64_t{512} << 20;  // of graphs and partial results
  // Which slots a GPU with so much memory has; "" where the CPU computes all.
  const auto slots_with = [&](uint64_t bytes) -> std::string {
    const auto engine = streamed.open(options, {.memory_bytes = bytes});
    if (!engine) return "nothing";
    const int64_t before = streamed.log.retiles;
    Comparison result;
    compare_case(*engine, reference_cases(model_dir(model))[0], 7, result);
    EXPECT_EQ(result.equal, result.cases) << bytes;
    const bool warned = Matches(Contains(HasSubstr(
        "warning: long prompts are computed by the CPU alone: cuda:0 has no room for the ")))(
        engine->notes());
    EXPECT_EQ(streamed.log.retiles > before, !warned);
    if (warned) return "";
    for (const plan::StreamSlots slots : plan::kStreamSlots) {
      const std::string note = fmt::format("experts are streamed by {}:", plan::name(slots));
      if (Matches(Contains(HasSubstr(note)))(engine->notes())) return std::string(name(slots));
    }
    return "a layer";
  };
  uint64_t last = UINT64_MAX;
  for (const plan::StreamSlots slots : plan::kStreamSlots) {
    const plan::DeviceMemory at = need(slots);
    EXPECT_LT(at.stream_bytes, last);
    last = at.stream_bytes;
    EXPECT_EQ(slots_with(at.total() + reserve), plan::name(slots));
  }
  EXPECT_EQ(slots_with(need(plan::StreamSlots::Layer).total() + reserve - 1), "a matrix");
  EXPECT_EQ(slots_with(need(plan::StreamSlots::Eighth).total() + reserve - 1), "");
  EXPECT_EQ(slots_with(need(plan::StreamSlots::Eighth).weight_bytes), "nothing");
  EXPECT_THAT(streamed.error, HasSubstr("does not hold what the plan puts there"));
}

INSTANTIATE_TEST_SUITE_P(All, StreamedSlots,
                         ::testing::Values("qwen2moe", "qwen3moe", "deepseek2", "deepseek3",
                                           "glm4_moe", "mixtral", "minimax_m2", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

// The compiler's choice for the memory that --vram leaves: a GPU with more of it uses no more.
TEST(StreamedExperts, ComeByTheSlotsOfThePlan) {
  std::set<std::string> seen;
  for (int mib = 782; mib <= 786 && seen.size() < 2; ++mib) {
    Streamed streamed("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=4",
                      "targets/h200.yaml", fmt::format("{}MiB", mib));
    const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
    const auto slots = plan::stream_slots(file.view().facts.stream_slots);
    ASSERT_TRUE(slots);
    if (!seen.insert(std::string(name(*slots))).second) continue;
    runtime::EngineOptions options;
    options.chunk_tokens = 64;
    const auto engine = streamed.open(options);
    ASSERT_TRUE(engine) << streamed.error;
    for (const std::string& note : engine->notes()) {
      EXPECT_FALSE(note.starts_with("experts are streamed by")) << note;
    }
    const plan::RunShape shape = {.ctx = 256, .step_tokens = 64, .kv_type = plan::KvType::F32};
    const auto need = (*plan::memory_by_device(file.view(), shape, *slots))[1];
    const auto least = (*plan::memory_by_device(file.view(), shape, plan::StreamSlots::Eighth))[1];
    EXPECT_GE(need.stream_bytes, least.stream_bytes);
    Comparison result;
    compare_case(*engine, reference_cases(model_dir("qwen3moe"))[0], 7, result);
    EXPECT_EQ(result.equal, result.cases);
    EXPECT_GT(streamed.log.retiles, 0);
  }
  EXPECT_GT(seen.size(), 1u) << "another --vram gives other slots";
}

// Every strip of every product once, in the order of the steps, and no slot too small.
TEST(StreamedExperts, ComeInPiecesThatMakeUpAllOfThem) {
  Streamed streamed("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=4");
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  const plan::PlanView& plan = file.view();
  const auto streams = plan.streams;
  for (const plan::StreamSlots slots : plan::kStreamSlots) {
    const auto memory =
        plan::stream_memory(*plan.program, streams, "cuda:0", {.step_tokens = 64}, slots);
    ASSERT_TRUE(memory) << memory.error().message;
    std::map<uint32_t, uint64_t> copied;  // bytes by blob
    uint32_t step = 0;
    for (const plan::StreamPiece& piece : memory->pieces) {
      EXPECT_GE(piece.step, step);
      step = piece.step;
      EXPECT_LE(piece.bytes(), memory->panel_bytes);
      for (const plan::StreamCopy& copy : piece.copies) {
        EXPECT_EQ(copy.begin, copied[copy.blob]);
        copied[copy.blob] += copy.bytes;
        EXPECT_LT(copy.tiles, memory->tile_bytes);
      }
    }
    size_t products = 0;
    for (const program::Stream& stream : streams) {
      products += stream.products.size();
      for (int32_t blob : stream.products) {
        EXPECT_EQ(copied[static_cast<uint32_t>(blob)], plan.blobs[blob].size);
      }
    }
    EXPECT_EQ(copied.size(), products);
  }
}

TEST(StreamedExperts, WorkWithAWarningWhereMemoryCannotBePinned) {
  Streamed streamed("qwen2moe", "moe-experts-on-cpu.yaml", "stream-experts=4");
  const auto engine = streamed.open({}, {.refuses_to_pin = true});
  ASSERT_TRUE(engine) << streamed.error;
  EXPECT_THAT(engine->notes(),
              Contains(HasSubstr("warning: experts are streamed from memory that "
                                 "cannot be pinned, at a fraction of the speed: this "
                                 "memory cannot be pinned")));
  Comparison result;
  compare_case(*engine, reference_cases(model_dir("qwen2moe"))[0], 7, result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_GT(streamed.log.retiles, 0);
}

TEST(MemoryThatCannotBePinned, IsCopiedWithAWarning) {
  Streamed streamed("qwen3moe", kHalfExperts, "stream-experts=no");
  const auto engine = streamed.open({}, {.refuses_to_pin = true});
  ASSERT_TRUE(engine) << streamed.error;
  EXPECT_THAT(engine->notes(), Contains(HasSubstr("warning: main memory cannot be pinned, so that "
                                                  "copies between it and cuda:0 are slower")));
  Comparison result;
  const nlohmann::json cases = reference_cases(model_dir("qwen3moe"));
  for (size_t i = 0; i < 3; ++i) compare_case(*engine, cases[i], 7, result);
  EXPECT_EQ(result.equal, result.cases);
  EXPECT_EQ(streamed.log.graph_launches, 0) << "each part here has copies";
}

// What the reader refuses, besides damage that launches of GPUs can have as well.
TEST(StreamedExperts, LaunchesThatDoNotBelongTogetherAreRefused) {
  Streamed streamed("qwen3moe", "moe-experts-on-cpu.yaml", "stream-experts=6");
  const plan::PlanFile file = plan::PlanFile::open(streamed.plan()).take();
  const program::Stream stream = file->streams[0];
  const auto refusal = [&](auto change) {
    program::Program program = *file->program;
    for (program::Launch& launch : program.launches) {
      if (!launch.op && launch.steps[0] == stream.steps[1]) change(launch);
    }
    std::erase_if(program.launches,
                  [](const program::Launch& launch) { return launch.steps.empty(); });
    const Status checked = program::verify_launches(program);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(refusal([](program::Launch&) {}), "");
  EXPECT_THAT(
      refusal([](program::Launch& l) { l.least_tokens = std::max<int64_t>(l.least_tokens, 7); }),
      HasSubstr("from 6 tokens on, step 21 from 7"));
  EXPECT_THAT(refusal([](program::Launch& l) { l.steps.clear(); }), HasSubstr("has no kernel"));
  // The embedding, which no GPU feeds.
  EXPECT_THAT(refusal([](program::Launch& l) { l.steps = {0}; }),
              HasSubstr("steps 0 and 0 are not of one part on a GPU"));
}

TEST(StreamedExperts, StandAmongTheLaunches) {
  const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen2moe"),
                                    source_dir() + "/rules/moe-experts-on-cpu.yaml",
                                    "--target=" + source_dir() + "/targets/h200.yaml",
                                    "--prefer=stream-experts=300", "--emit=launches"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("experts_gate_up of model.layers.0.mlp.experts\n"));
  EXPECT_THAT(run.out, HasSubstr("300..      gpu_router\n"));
  const Finished bad = run_program(
      {ktx_compile(), model_gguf("qwen2moe"), "--prefer=stream-experts=0", "--emit=launches"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("unknown preference 'stream-experts=0'"));
}

}  // namespace
}  // namespace ktx::testing
