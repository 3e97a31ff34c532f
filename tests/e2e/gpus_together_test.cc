// Several GPUs that compute each layer together, without a GPU (tests/support/host_gpu.h): what is
// divided, the same answers as of one GPU, answers that end, a GPU that fails.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "lib/input/hf_config.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/gpu/measure_sums.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
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

enum class Sums { Copied, Host, Peers };

// A model with a config of tests/models and weights in Q8_0: rows of small models can be cut into
// its blocks of 32, and GPUs can compute the experts.
class Together {
 public:
  explicit Together(const std::string& model, int gpus,
                    const std::string& rules = source_dir() + "/rules/split-gpus.yaml") {
    const std::string target = dir_.write("some.yaml", fmt::format(R"(name: some
gpus:
  - {{name: A, compute_capability: 9.0, memory_gib: 80, bandwidth_gbps: 3000, pcie_gbps: 50, count: {}}}
cpu: {{isa: avx512, cores: 8, memory_gib: 64, bandwidth_gbps: 100, numa_nodes: 1}}
)",
                                                                   gpus));
    const std::string config = model.starts_with("{") ? model : config_of(model);
    const auto read = input::HfConfig::parse(config, "config.json");
    EXPECT_TRUE(read.ok());
    const auto writer = synth::synthesise(*read, {.types = "q8_0", .seed = 41, .strong = true});
    EXPECT_TRUE(writer.ok());
    EXPECT_TRUE(writer->write(dir_.path("m.gguf")));
    const std::string file = rules.starts_with("version") ? dir_.write("rules.yaml", rules) : rules;
    const Finished run = run_program({ktx_compile(), "-q", dir_.path("m.gguf"), file,
                                      "--target=" + target, "-o", dir_.path("m.ktxplan")});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  static std::string config_of(const std::string& model) {
    return read_file(source_dir() + "/tests/models/" + model + "/config.json");
  }
  std::string plan() const { return dir_.path("m.ktxplan"); }
  std::unique_ptr<runtime::Engine> open(Sums sums, runtime::EngineOptions options = {},
                                        HostGpuOptions gpu = {}) {
    options.threads = 2;
    options.precision = options.precision.value_or(runtime::Precision::Exact);
    gpu.adds_up = sums != Sums::Copied;
    gpu.reaches_others = sums == Sums::Peers;
    options.open_gpu = HostGpu::opener(gpu, &log);
    auto engine = runtime::Engine::open(plan(), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine ? engine.take() : nullptr;
  }

  HostGpuLog log;

 private:
  TempDir dir_;
};

std::vector<int32_t> some_prompt(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(3 + i * 7 % 90));
  return ids;
}

// So many tokens behind a prompt that is computed in chunks of 7.
std::vector<int32_t> greedy(runtime::Engine& engine, int64_t count) {
  runtime::Sequence sequence = engine.new_sequence();
  const std::vector<int32_t> prompt = some_prompt(23);
  std::span<const int32_t> next = prompt;
  std::vector<int32_t> ids;
  while (std::ssize(ids) < count) {
    for (; !next.empty(); next = next.subspan(std::min<size_t>(7, next.size()))) {
      const runtime::BatchItem item{&sequence, next.first(std::min<size_t>(7, next.size())),
                                    runtime::Want::Last};
      const auto done = engine.forward({&item, 1});
      EXPECT_TRUE(done.ok()) << done.error().message;
      if (!done.ok()) return ids;
    }
    const std::span<const float> logits = engine.logits(0);
    ids.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    next = std::span(ids).last(1);
  }
  return ids;
}

void expect_ids_of_one_gpu(const std::string& model) {
  Together one(model, 1, source_dir() + "/rules/all-gpu.yaml");
  const auto alone = one.open(Sums::Copied);
  ASSERT_TRUE(alone);
  const std::vector<int32_t> want = greedy(*alone, 24);
  for (const int gpus : {2, 3, 4}) {
    Together some(model, gpus);
    for (const Sums sums : {Sums::Copied, Sums::Host, Sums::Peers}) {
      if (gpus == 3 && sums != Sums::Host) continue;
      const auto engine = some.open(sums);
      ASSERT_TRUE(engine);
      EXPECT_EQ(greedy(*engine, 24), want) << gpus << " GPUs";
      EXPECT_EQ(some.log.sums > 0, sums != Sums::Copied);
    }
  }
}

class TogetherAsOne : public ::testing::TestWithParam<const char*> {};

TEST_P(TogetherAsOne, GiveTheIdsOfOneGpu) {
  expect_ids_of_one_gpu(GetParam());
}

// Value head h has key head h % 4, of 12: two GPUs have half of each tile of four, four GPUs three
// heads that follow each other.
TEST(GpusTogether, DivideTiledDeltaNetsByTilesOrByHeadsThatFollow) {
  const std::string config = R"({"architectures": ["Qwen3_5MoeForCausalLM"],
    "model_type": "qwen3_5_moe_text", "full_attention_interval": 2, "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 256, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32, "linear_num_key_heads": 4, "linear_num_value_heads": 12,
    "linear_value_head_dim": 32, "max_position_embeddings": 4096, "moe_intermediate_size": 64,
    "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4,
    "num_key_value_heads": 1, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-06,
    "rope_theta": 10000, "shared_expert_intermediate_size": 64, "tie_word_embeddings": false,
    "vocab_size": 512})";
  const Together two(config, 2);
  const plan::PlanFile file = plan::PlanFile::open(two.plan()).take();
  int64_t divided = 0;
  for (const program::Step& step : file.view().program->steps) {
    const auto* rule = std::get_if<DeltaRuleAttrs>(&step.attrs);
    if (rule == nullptr) continue;
    EXPECT_EQ(rule->key_heads, 2);
    EXPECT_EQ(rule->value_heads, 6);
    ++divided;
  }
  EXPECT_EQ(divided, 4) << "of two layers, on two GPUs";
  expect_ids_of_one_gpu(config);
}

INSTANTIATE_TEST_SUITE_P(All, TogetherAsOne,
                         ::testing::Values("llama", "qwen2", "qwen2moe", "qwen3moe", "mixtral",
                                           "gemma3", "gpt_oss", "olmo2", "deepseek2", "deepseek3",
                                           "qwen3_next", "synthetic/deepseek_v32",
                                           "synthetic/kimi_linear", "synthetic/nemotron_h",
                                           "synthetic/falcon_h1", "synthetic/lfm2",
                                           "synthetic/bailing_hybrid", "synthetic/gemma4_e"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(name.rfind('/') + 1);
                         });

// Steps of an op on a GPU whose weights or heads are a part.
int64_t parts_on(const program::Program& program, StepOp op, const std::string& device,
                 const char* of) {
  return std::ranges::count_if(program.steps, [&](const program::Step& step) {
    if (step.op != op || step.device != device) return false;
    return std::ranges::any_of(step.weights, [&](program::BlobId id) {
      return id != program::kAbsent && program.blobs[id].name.find(of) != std::string::npos;
    });
  });
}

TEST(GpusTogether, DivideHeadsOfLatentAttentionAndCopyItsCache) {
  const Together two("deepseek2", 2);
  const plan::PlanFile file = plan::PlanFile::open(two.plan()).take();
  const program::Program& program = *file.view().program;
  const int64_t layers = std::ssize(program.kv_slots) / 2;
  for (const char* device : {"cuda:0", "cuda:1"}) {
    EXPECT_EQ(parts_on(program, StepOp::MatmulHeads, device, "of2@"), 2 * layers) << device;
    EXPECT_EQ(std::ranges::count(program.kv_slots, device, &program::KvSlot::device), layers);
  }
  for (const program::KvSlot& slot : program.kv_slots) EXPECT_EQ(slot.kv_heads, 1);
  const Finished inspected = run_program({ktx_run(), "inspect", two.plan()});
  EXPECT_THAT(inspected.out, HasSubstr(fmt::format(
                                 "together     cuda:0, cuda:1 compute {} layers together, with {} "
                                 "sums a token; divided: attention, experts, head\n",
                                 layers, 2 * layers)));
  EXPECT_GT(parts_on(program, StepOp::Matmul, "cuda:1", "output.weight/"), 0) << "the head";
}

TEST(GpusTogether, DivideHeadsOfDeltaNetsWithTheirStates) {
  const Together one("qwen3_next", 1, source_dir() + "/rules/all-gpu.yaml"), two("qwen3_next", 2);
  const auto states = [](const Together& plan, const std::string& device) {
    const plan::PlanFile file = plan::PlanFile::open(plan.plan()).take();
    int64_t floats = 0;
    for (const program::Step& step : file.view().program->steps) {
      if (step.device == device) floats += kept_by(step.attrs).state_floats;
    }
    return floats;
  };
  const int64_t all = states(one, "cuda:0");
  ASSERT_GT(all, 0);
  EXPECT_EQ(states(two, "cuda:0"), all / 2);
  EXPECT_EQ(states(two, "cuda:1"), all / 2);
}

TEST(GpusTogether, DivideWhatARuleSays) {
  const auto program_of = [](const std::string& split) {
    const Together two("deepseek2", 2,
                       fmt::format(R"(version: 1
rules:
  - match: {{name: "."}}
    replace: {{devices: [cuda:0, cuda:1], split: {}}}
)",
                                   split));
    return *plan::PlanFile::open(two.plan()).take().view().program;
  };
  const program::Program heads = program_of("heads"), rest = program_of("[columns, experts]");
  EXPECT_GT(parts_on(heads, StepOp::MatmulHeads, "cuda:1", "of2@"), 0);
  EXPECT_EQ(parts_on(heads, StepOp::ExpertsDown, "cuda:1", "@"), 0);
  EXPECT_EQ(parts_on(rest, StepOp::MatmulHeads, "cuda:1", "@"), 0);
  EXPECT_GT(parts_on(rest, StepOp::ExpertsDown, "cuda:1", "@"), 0);
  EXPECT_GT(parts_on(rest, StepOp::Matmul, "cuda:1", "columns2of2@"), 0);
}

// The stand-in says so where a GPU would wait for one whose sum is not queued.
TEST(GpusTogether, TwoHundredAnswersThatEndAtRandomLeaveNoneWaiting) {
  for (const Sums sums : {Sums::Peers, Sums::Host}) {
    Together two("deepseek2", 2);
    runtime::EngineOptions options;
    options.chunk_tokens = 16;
    options.max_batch = 3;
    const auto engine = two.open(sums, options);
    ASSERT_TRUE(engine);
    const std::vector<int32_t> want = greedy(*engine, 6);
    std::mt19937 random(41);
    int ended = 0;
    for (int i = 0; i < 100; ++i) {
      runtime::Session session(
          *engine,
          runtime::Sampler::create(runtime::greedy_sampling(), engine->vocab_size()).take());
      std::atomic<bool> stop = false;
      int left = static_cast<int>(random() % 40);
      session.watch(&stop, [&](double, int64_t) { stop = left-- <= 0; });
      const auto outcome = session.set_prompt(some_prompt(5 + static_cast<int64_t>(random() % 60)));
      ASSERT_TRUE(outcome.ok()) << i << ": " << outcome.error().message;
      ended += *outcome == runtime::Outcome::Stopped;
    }
    EXPECT_GT(ended, 30);
    EXPECT_EQ(greedy(*engine, 6), want);
  }
}

TEST(GpusTogether, AFailingGpuIsNamedAndAllAnswersEnd) {
  Together two("llama", 2);
  runtime::EngineOptions options;
  options.max_batch = 3;
  options.gpu_graphs = false;
  std::set<std::string> named;
  for (const int64_t at : {5, 40, 41, 200}) {
    two.log = {};
    const auto engine = two.open(Sums::Peers, options, {.fail_at_launch = at});
    ASSERT_TRUE(engine);
    std::vector<std::string> errors;
    {
      runtime::BatchScheduler scheduler(*engine, {});
      for (int i = 0; i < 3; ++i) {
        runtime::GenerationRequest request;
        request.prompt = some_prompt(4 + i);
        request.max_tokens = 20;
        request.sampling = runtime::greedy_sampling();
        request.on_end = [&](const runtime::RequestEnd& end) { errors.push_back(end.error); };
        ASSERT_NE(scheduler.submit(std::move(request)), 0u);
      }
      EXPECT_TRUE(scheduler.wait_idle(std::chrono::seconds(60)));
    }
    ASSERT_EQ(errors.size(), 3u) << "each ends once";
    for (const std::string& error : errors) {
      if (error.find("start the program again") != std::string::npos) continue;
      EXPECT_THAT(error, HasSubstr("the GPU is lost"));
      for (const char* gpu : {"cuda:0", "cuda:1"}) {
        if (error.find(fmt::format(": {}: step ", gpu)) != std::string::npos) named.insert(gpu);
      }
    }
  }
  EXPECT_EQ(named, (std::set<std::string>{"cuda:0", "cuda:1"}));
}

TEST(GpusTogether, TheTimesOfSumsAreMeasured) {
  HostGpuLog log;
  for (const bool reach : {true, false}) {
    std::vector<std::unique_ptr<runtime::Gpu>> gpus;
    for (int i = 0; i < 2; ++i) {
      gpus.push_back(std::make_unique<HostGpu>(
          i, HostGpuOptions{.adds_up = true, .reaches_others = reach}, &log));
    }
    const auto times = runtime::measure_sums(gpus, 2 << 20);
    ASSERT_TRUE(times.ok()) << times.error().message;
    EXPECT_GT(times->seconds_16k, 0);
    EXPECT_GT(times->seconds_mib, times->seconds_16k);
    EXPECT_EQ(times->read > 0, reach);
  }
}

}  // namespace
}  // namespace ktx::testing
