// ktx-run selftest: healthy plans of all test models pass on every instruction set, in both
// precisions and for every placement, and wrong kernels and flipped bits are found with their step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/input/hf_config.h"
#include "lib/plan/expert_memory.h"
#include "lib/plan/plan_format.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "lib/runtime/experts/expert_cache.h"
#include "lib/runtime/quality/locate_fault.h"
#include "lib/runtime/quality/replay_answers.h"
#include "tests/support/host_gpu.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::Precision;
using ::testing::HasSubstr;

class TestedPlan {
 public:
  struct Gguf {
    std::string path;
  };
  explicit TestedPlan(const std::string& model, const std::vector<std::string>& words = {})
      : TestedPlan(Gguf{test_model_gguf(model)}, words) {}
  explicit TestedPlan(const Gguf& gguf, const std::vector<std::string>& words = {}) {
    std::vector<std::string> command = {ktx_compile(), "-q", gguf.path, "--selftest",
                                        "2",           "-o", path()};
    command.insert(command.end(), words.begin(), words.end());
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string path() const { return dir_.path("m.ktxplan"); }

  EngineOptions options(Precision precision, const HostGpuOptions& gpu = {}) {
    EngineOptions options;
    options.threads = 2;
    options.precision = precision;
    options.open_gpu = HostGpu::opener(gpu, &log_);
    return options;
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(path(), options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
    return engine.ok() ? engine.take() : nullptr;
  }

  // Where a GPU of the stand-in has these bytes; null: nowhere.
  std::byte* find_on_gpu(std::span<const std::byte> bytes) const {
    for (const auto& [data, size] : log_.memory->blocks) {
      void* const found = memmem(data, size, bytes.data(), bytes.size());
      if (found != nullptr) return static_cast<std::byte*>(found);
    }
    return nullptr;
  }

 private:
  TempDir dir_;
  HostGpuLog log_;
};

std::string target(const std::string& name) {
  return "--target=" + source_dir() + "/targets/" + name + ".yaml";
}
std::string rule(const std::string& name) {
  return source_dir() + "/rules/" + name;
}

// The whole test as the command runs it.
void expect_healthy(TestedPlan& plan, const EngineOptions& options, const std::string& what) {
  SCOPED_TRACE(what);
  const auto engine = plan.open(options);
  ASSERT_TRUE(engine);
  const auto test = plan::read_self_test(engine->plan());
  ASSERT_TRUE(test.ok()) << test.error().message;
  const auto damaged = engine->check_weights();
  ASSERT_TRUE(damaged.ok()) << damaged.error().message;
  EXPECT_TRUE(damaged->empty());
  const auto run = runtime::replay(*engine, *test);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->answers, 2 * 17);
  const auto search = runtime::locate_fault(plan.path(), options, *test);
  ASSERT_TRUE(search.ok()) << search.error().message;
  std::printf("%s: answers %.3g, worst %.3g, steps %.3g, layers %.3g (%ld steps)\n", what.c_str(),
              run->median, run->worst, search->worst_step.difference, search->worst_stream,
              static_cast<long>(search->steps));
  EXPECT_TRUE(run->passed()) << run->median << ", worst " << run->worst;
  EXPECT_FALSE(search->wrong_step)
      << search->wrong_step->step << " by " << search->wrong_step->difference;
}

class HealthyModel : public ::testing::TestWithParam<const char*> {};

TEST_P(HealthyModel, PassesOnEveryInstructionSetInBothPrecisions) {
  TestedPlan int8(GetParam()), bf16(GetParam(), {"--inputs=bf16"});
  for (const Isa isa : usable_isas()) {
    for (const Precision precision : {Precision::Exact, Precision::Fast}) {
      EngineOptions options = int8.options(precision);
      options.isa = isa;
      const std::string what = std::string(GetParam()) + " " + std::string(name(isa)) +
                               (precision == Precision::Exact ? " exact" : " fast");
      expect_healthy(int8, options, what);
      if (precision == Precision::Fast) expect_healthy(bf16, options, what + " bf16");
    }
  }
  EngineOptions small_cache = int8.options(Precision::Fast);
  small_cache.kv_type = plan::KvType::Q8_0;
  expect_healthy(int8, small_cache, std::string(GetParam()) + " fast, cache q8");
}

TEST_P(HealthyModel, PassesForEveryPlacement) {
  const std::vector<std::string> placements[] = {
      {target("h200"), rule("all-gpu.yaml")},
      {target("rtx-4090"), rule("moe-experts-on-cpu.yaml")},
      {target("h200")},
      {target("zen4"), rule("cpu-only.yaml")}};
  for (const auto& words : placements) {
    TestedPlan plan(GetParam(), words);
    for (const Precision precision : {Precision::Exact, Precision::Fast}) {
      expect_healthy(plan, plan.options(precision),
                     std::string(GetParam()) + " " + words.back() +
                         (precision == Precision::Exact ? " exact" : " fast"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HealthyModel, ::testing::ValuesIn(present_models()),
                         [](const auto& info) { return std::string(info.param); });

// Families without trained weights, whose logits are large and answers sure: digits of the stored
// answers count for more there.
TEST(HealthySynthetic, PassesInBothPrecisions) {
  const TempDir dir;
  for (const char* name : {"hunyuan_dense", "gemma4_e", "deepseek_v4", "mamba2"}) {
    const auto config = input::HfConfig::parse(
        read_file(source_dir() + "/tests/models/synthetic/" + name + "/config.json"),
        "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto gguf = synth::synthesise(*config, {});
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    ASSERT_TRUE(gguf->write(dir.path("m.gguf")));
    TestedPlan plan(TestedPlan::Gguf{dir.path("m.gguf")});
    for (const Precision precision : {Precision::Exact, Precision::Fast}) {
      expect_healthy(plan, plan.options(precision), name);
    }
  }
}

// ---- Wrong kernels. A table of ops for the engine, whose functions make steps from a plan that is
// changed a little: as if the kernel had another constant, or read its weights at another place.

struct KernelFault {
  const char* name;
  const char* model;
  StepOp op;
  const char* module;  // a part of its name
  // Changes the attributes, inputs and weights of the step.
  void (*spoil)(StepAttrs& attrs, std::vector<program::View>& inputs,
                std::vector<plan::BlobRecord>& weights);
};

using Attrs = StepAttrs;
using Inputs = std::vector<program::View>;
using Weights = std::vector<plan::BlobRecord>;

// Kernels that are off by some tiles.
void read_further(Attrs&, Inputs&, Weights& weights) {
  weights[0].offset += weights[0].size / 2;
}
void read_before(Attrs&, Inputs&, Weights& weights) {
  weights[0].offset -= weights[0].size / 2;
}

const KernelFault kFaults[] = {
    {"a norm with another epsilon", "llama", StepOp::RmsNorm, "layers.1.post_attention_layernorm",
     [](Attrs& attrs, Inputs&, Weights&) { std::get<RmsNormAttrs>(attrs).eps = 50; }},
    {"a final norm by the weight of nothing", "qwen2", StepOp::RmsNorm, "model.norm",
     [](Attrs& attrs, Inputs&, Weights&) { std::get<RmsNormAttrs>(attrs).eps = 1e4; }},
    {"attention with another scale", "llama", StepOp::Attention, "layers.0.self_attn",
     [](Attrs& attrs, Inputs&, Weights&) { std::get<AttentionAttrs>(attrs).scale *= 30; }},
    {"attention that sees two positions", "qwen3moe", StepOp::Attention, "layers.1.self_attn",
     [](Attrs& attrs, Inputs&, Weights&) { std::get<AttentionAttrs>(attrs).window = 1; }},
    {"a product that drops the residual", "llama", StepOp::Matmul, "layers.2.self_attn.o_proj",
     [](Attrs& attrs, Inputs&, Weights&) { std::get<MatmulAttrs>(attrs).accumulate = 0; }},
    {"keys and values exchanged", "qwen2", StepOp::KvStore, "layers.1.self_attn",
     [](Attrs&, Inputs& inputs, Weights&) { std::swap(inputs[0], inputs[1]); }},
    {"a rotation of other pairs", "llama", StepOp::Rope, "layers.0.self_attn",
     [](Attrs& attrs, Inputs&, Weights&) {
       auto& rope = std::get<RopeAttrs>(attrs);
       rope.interleaved = 1 - rope.interleaved;
     }},
    {"another activation", "llama", StepOp::Glu, "layers.1.mlp",
     [](Attrs& attrs, Inputs&, Weights&) {
       std::get<GluAttrs>(attrs).activation = static_cast<int32_t>(Activation::Relu);
     }},
    {"weights of experts that are not normalised", "mixtral", StepOp::Router, "layers.0",
     [](Attrs& attrs, Inputs&, Weights&) { std::get<RouterAttrs>(attrs).scale = 3; }},
    {"experts with another activation", "qwen3moe", StepOp::ExpertsGateUp, "layers.2.mlp.experts",
     [](Attrs& attrs, Inputs&, Weights&) {
       std::get<ExpertsAttrs>(attrs).activation = static_cast<int32_t>(Activation::Relu);
     }},
    {"a convolution of other channels", "qwen3_next", StepOp::CausalConv, "layers.0", read_further},
    {"a head that reads other rows", "llama", StepOp::Matmul, "lm_head", read_before},
    {"an embedding of other tokens", "deepseek3", StepOp::Embed, "embed_tokens", read_further},
};

const KernelFault* fault = nullptr;
std::optional<uint32_t> spoilt;  // the step that it meets

Result<std::unique_ptr<runtime::CpuStep>> make_spoilt(const runtime::BindContext& given) {
  const runtime::MakeStep make = runtime::cpu_op(given.step.op);
  const auto index = static_cast<uint32_t>(&given.step - given.plan.program->steps.data());
  const bool meets =
      given.step.op == fault->op && given.step.module.find(fault->module) != std::string::npos;
  // The first of such steps, and never the scalar kernel, which is the judge.
  if (!meets || given.isa == Isa::Scalar || spoilt.value_or(index) != index) return make(given);
  spoilt = index;

  plan::PlanView plan = given.plan;
  program::Program program = *plan.program;
  program::Step step = given.step;
  Weights weights;
  for (const program::BlobId blob : step.weights) {
    if (blob != program::kAbsent) weights.push_back(plan.blobs[blob]);
  }
  fault->spoil(step.attrs, step.inputs, weights);
  // Behind the weights of all other steps, which may be looked at.
  Weights blobs(plan.blobs.begin(), plan.blobs.end());
  for (program::BlobId& blob : step.weights) {
    if (blob == program::kAbsent) continue;
    blobs.push_back(weights[blobs.size() - plan.blobs.size()]);
    program.blobs.push_back(program.blobs[blob]);
    blob = static_cast<program::BlobId>(program.blobs.size() - 1);
  }
  plan.blobs = blobs;
  plan.program = &program;
  const runtime::BindContext context{
      plan,         step,           given.arena,        given.buffer_offsets,
      given.kv,     given.isa,      given.precision,    given.threads,
      given.shares, given.partials, given.expert_counts};
  return make(context);
}
runtime::MakeStep spoilt_op(StepOp op) {
  return runtime::cpu_op(op) != nullptr ? make_spoilt : nullptr;
}

class WrongKernel : public ::testing::TestWithParam<KernelFault> {};

TEST_P(WrongKernel, IsFoundAndItsStepNamed) {
  if (usable_isas().size() == 1) GTEST_SKIP() << "one kernel for each op here";
  if (test_model_dir(GetParam().model).empty()) GTEST_SKIP() << GetParam().model;
  TestedPlan plan(GetParam().model);
  fault = &GetParam();
  spoilt.reset();
  for (const Precision precision : {Precision::Exact, Precision::Fast}) {
    EngineOptions options = plan.options(precision);
    options.cpu_op = spoilt_op;
    const auto engine = plan.open(options);
    ASSERT_TRUE(engine);
    ASSERT_TRUE(spoilt) << "no such step";
    const auto test = plan::read_self_test(engine->plan());
    ASSERT_TRUE(test.ok()) << test.error().message;
    const auto run = runtime::replay(*engine, *test);
    ASSERT_TRUE(run.ok()) << run.error().message;
    const auto search = runtime::locate_fault(plan.path(), options, *test);
    ASSERT_TRUE(search.ok()) << search.error().message;
    ASSERT_TRUE(search->wrong_step) << GetParam().name;
    EXPECT_EQ(search->wrong_step->step, *spoilt);
    std::printf("%s: answers %.3g, worst %.3g, step %u by %.3g, layer %d\n", GetParam().name,
                run->median, run->worst, search->wrong_step->step, search->wrong_step->difference,
                search->parting_layer.value_or(-2));
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, WrongKernel, ::testing::ValuesIn(kFaults), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// A step of a GPU is not repeated: its layer is named.
TEST(WrongGpu, IsFoundAndItsLayerNamed) {
  TestedPlan plan("qwen3moe", {target("rtx-4090"), rule("moe-experts-on-cpu.yaml")});
  const auto file = plan::PlanFile::open(plan.path());
  ASSERT_TRUE(file.ok());
  const auto test = plan::read_self_test(file->view());
  ASSERT_TRUE(test.ok());
  int tried = 0;
  for (uint32_t i = 0; i < file->view().steps.size() && tried < 3; ++i) {
    const plan::StepRecord& step = file->view().steps[i];
    const auto op = static_cast<StepOp>(step.op);
    if (file->view().string(step.device) == "cpu" || step.layer != tried) continue;
    if (op != StepOp::Attention && op != StepOp::RmsNorm) continue;
    ++tried;
    const EngineOptions options =
        plan.options(Precision::Fast, {.wrong_step = static_cast<int64_t>(i)});
    const auto engine = plan.open(options);
    ASSERT_TRUE(engine);
    const auto run = runtime::replay(*engine, *test);
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_FALSE(run->passed()) << run->worst;
    const auto search = runtime::locate_fault(plan.path(), options, *test);
    ASSERT_TRUE(search.ok()) << search.error().message;
    EXPECT_EQ(search->parting_layer, step.layer) << "step " << i;
    EXPECT_FALSE(search->wrong_step);
  }
  EXPECT_EQ(tried, 3);
}

// ---- Flipped bits.

// One of a weight in the mapping of the plan: its page becomes one of this process, with that bit
// flipped.
void flip_in_mapping(const plan::PlanView& plan, uint32_t blob, uint64_t bit) {
  auto* const byte = const_cast<std::byte*>(plan.blob_bytes(blob).data()) + bit / 8;
  auto* const page =
      reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(byte) & ~uintptr_t{4095});
  const std::vector<std::byte> copy(page, page + 4096);
  ASSERT_EQ(
      mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      page);
  std::copy(copy.begin(), copy.end(), page);
  *byte ^= std::byte{1} << (bit % 8);
}

TEST(FlippedBits, InMainMemoryAreFoundWithTheStepsThatReadThem) {
  std::mt19937_64 random(11);
  int found = 0;
  for (const char* model : {"llama", "qwen3moe"}) {
    TestedPlan tested(model);
    const auto engine = tested.open(tested.options(Precision::Fast));
    ASSERT_TRUE(engine);
    const plan::PlanView& plan = engine->plan();
    for (int i = 0; i < 10; ++i) {
      const auto blob = static_cast<uint32_t>(random() % plan.blobs.size());
      if (runtime::readers_of(plan, blob).empty()) {
        --i;
        continue;
      }
      const uint64_t bit = random() % (8 * plan.blobs[blob].size);
      flip_in_mapping(plan, blob, bit);
      const auto damaged = engine->check_weights();
      ASSERT_TRUE(damaged.ok()) << damaged.error().message;
      EXPECT_EQ(*damaged, std::vector<uint32_t>{blob}) << "bit " << bit;
      found += *damaged == std::vector<uint32_t>{blob};
      flip_in_mapping(plan, blob, bit);
      EXPECT_TRUE(engine->check_weights()->empty());
    }
  }
  EXPECT_EQ(found, 20);
}

// Experts that come from disk past the page cache: the bits of the slot that kernels read.
TEST(FlippedBits, InSlotsOfExpertsFromDiskAreFound) {
  TestedPlan tested("qwen3moe");
  for (const int flipped : {0, 5, 13, 29, 40}) {
    std::atomic<int> reads = 0;
    std::atomic<uint64_t> place = 0;  // in the file
    runtime::ExpertCacheOptions cache;
    cache.reader.fault = [&](const runtime::DirectRead& read) {
      if (reads++ == flipped) {
        read.to[read.needed - 9] ^= std::byte{4};
        place = read.offset + read.needed - 9;
      }
      return 0;
    };
    EngineOptions options = tested.options(Precision::Fast);
    options.expert_cache = &cache;
    const auto file = plan::PlanFile::open(tested.path());
    ASSERT_TRUE(file.ok());
    options.expert_memory_bytes =
        static_cast<int64_t>(plan::expert_memory(*file->view().program).most_bytes());
    const auto engine = tested.open(options);
    ASSERT_TRUE(engine);
    const auto test = plan::read_self_test(engine->plan());
    ASSERT_TRUE(test.ok());
    ASSERT_TRUE(runtime::replay(*engine, *test).ok());
    ASSERT_GT(reads, flipped);
    const auto damaged = engine->check_weights();
    ASSERT_TRUE(damaged.ok()) << damaged.error().message;
    ASSERT_EQ(damaged->size(), 1u) << flipped;
    const plan::BlobRecord& blob = engine->plan().blobs[damaged->front()];
    EXPECT_GE(place, blob.offset);
    EXPECT_LT(place, blob.offset + blob.size);
  }
}

// A GPU of the stand-in that flips a bit of what it was given.
TEST(FlippedBits, InTheMemoryOfAGpuAreFound) {
  std::mt19937_64 random(12);
  TestedPlan tested("qwen3moe", {target("h200"), rule("moe-experts-on-cpu.yaml")});
  const auto engine = tested.open(tested.options(Precision::Fast));
  ASSERT_TRUE(engine);
  const plan::PlanView& plan = engine->plan();
  int found = 0;
  for (uint32_t blob = 0; blob < plan.blobs.size() && found < 10; ++blob) {
    if (plan.blobs[blob].size < 4096) continue;
    if (!plan.string(plan.blobs[blob].name).ends_with("@cuda:0")) continue;
    std::byte* const copy = tested.find_on_gpu(plan.blob_bytes(blob));
    ASSERT_TRUE(copy != nullptr);
    const uint64_t bit = random() % (8 * plan.blobs[blob].size);
    copy[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto damaged = engine->check_weights();
    ASSERT_TRUE(damaged.ok()) << damaged.error().message;
    EXPECT_EQ(*damaged, std::vector<uint32_t>{blob}) << "bit " << bit;
    found += *damaged == std::vector<uint32_t>{blob};
    copy[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_EQ(found, 10);
}

// ---- The commands.

class SelftestCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), target("zen4"), "--selftest",
                           "3", "-o", plan_})
                  .status,
              0);
  }
  // The plan with a flipped bit in a weight of layer 1.
  std::string damaged() {
    std::string bytes = read_file(plan_);
    const auto plan = plan::PlanFile::open(plan_);
    EXPECT_TRUE(plan.ok());
    for (const plan::BlobRecord& blob : plan->view().blobs) {
      if (plan->view().string(blob.name).starts_with("blk.1.attn_v.weight")) {
        bytes[blob.offset + 99] ^= 16;
      }
    }
    return dir_.write("damaged.ktxplan", bytes);
  }
  Finished run(const std::vector<std::string>& words) {
    std::vector<std::string> command = {ktx_run()};
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command);
  }
  TempDir dir_;
  const std::string plan_ = dir_.path("m.ktxplan");
};

TEST_F(SelftestCommand, PassesOfAHealthyPlan) {
  const Finished whole = run({"selftest", plan_});
  EXPECT_EQ(whole.status, 0) << whole.out << whole.err;
  for (const char* line : {"weights   ok", "answers   ok", "steps     ok", "layers    ok"}) {
    EXPECT_THAT(whole.out, HasSubstr(line));
  }
  EXPECT_THAT(whole.out, HasSubstr("m.ktxplan passes its self-test: fast precision, F16 cache"));
  const Finished quick =
      run({"selftest", plan_, "--quick", "--precision", "exact", "-t", "1", "--json"});
  EXPECT_EQ(quick.status, 0) << quick.err;
  const auto json = nlohmann::json::parse(quick.out, nullptr, false);
  EXPECT_EQ(json["passed"], true);
  EXPECT_EQ(json["findings"].size(), 2u);
  const Finished doctor = run({"doctor", plan_});
  EXPECT_EQ(doctor.status, 0) << doctor.out;
  EXPECT_THAT(doctor.out, HasSubstr("self-test     ok"));
}

TEST_F(SelftestCommand, NamesTheWeightAndItsStep) {
  const std::string plan = damaged();
  const Finished test = run({"selftest", plan});
  EXPECT_EQ(test.status, 1);
  EXPECT_THAT(test.out, HasSubstr("weights   FAILED  'blk.1.attn_v.weight"));
  EXPECT_THAT(test.out, HasSubstr("(matmul of model.layers.1.self_attn.v_proj on cpu)"));
  EXPECT_THAT(test.out, HasSubstr("FAILS its self-test"));
  const Finished doctor = run({"doctor", plan});
  EXPECT_EQ(doctor.status, 1);
  EXPECT_THAT(doctor.out, HasSubstr("self-test     problem  weight 'blk.1.attn_v.weight"));
}

// Before its port opens.
TEST_F(SelftestCommand, KeepsAServerFromStarting) {
  const Finished refused = run({"serve", damaged(), "--port", "0", "--selftest"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("damaged.ktxplan fails its self-test here and is not served: "
                                     "weight 'blk.1.attn_v.weight"));
  EXPECT_THAT(refused.err, ::testing::Not(HasSubstr("listening on")));
  const ServerProcess server({plan_, "--selftest"});
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST_F(SelftestCommand, SaysHowToMakeOne) {
  const std::string plain = dir_.path("plain.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plain}).status, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"selftest", plain},
        std::vector<std::string>{"serve", plain, "--port", "0", "--selftest"}}) {
    const Finished test = run(words);
    EXPECT_EQ(test.status, 1);
    EXPECT_THAT(test.err, HasSubstr("plain.ktxplan: the plan has no self-test; add one"));
  }
  EXPECT_EQ(run({"doctor", plain}).status, 0);
}

// The rest of the plan is the same without a self-test, and when one is added to a finished plan.
TEST_F(SelftestCommand, ChangesNothingElseOfThePlan) {
  const std::string plain = dir_.path("plain.ktxplan"), again = dir_.path("again.ktxplan");
  ASSERT_EQ(
      run_program({ktx_compile(), "-q", model_gguf("llama"), target("zen4"), "-o", plain}).status,
      0);
  const auto with = plan::PlanFile::open(plan_), without = plan::PlanFile::open(plain);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_TRUE(with->view().identity == without->view().identity);
  std::string a = read_file(plan_), b = read_file(plain);
  // The last of the digests is the self-test's.
  const auto digests =
      std::ranges::find(with->view().sections, static_cast<uint32_t>(plan::SectionId::Digests),
                        &plan::SectionEntry::id);
  const uint64_t digest = digests->offset + digests->size - sizeof(plan::DigestRecord);
  const std::string own = a.substr(digest, sizeof(plan::DigestRecord));
  a.replace(digest, own.size(), b, digest, own.size());
  const size_t header = with->view().sections.size() * 48 + 64;
  ASSERT_GT(a.size(), b.size());
  EXPECT_TRUE(a.substr(header, b.size() - header) == b.substr(header));
  ASSERT_EQ(
      run_program({ktx_compile(), "-q", plain, target("zen4"), "--selftest", "3", "-o", again})
          .status,
      0);
  a.replace(digest, own.size(), own);
  EXPECT_TRUE(read_file(again) == a);
}

TEST_F(SelftestCommand, IsRefusedWhereItsAnswersWouldNotBeThePlans) {
  const std::string rounded =
      dir_.write("rounded.yaml",
                 "- {match: {name: \".\"}, replace: {device: cpu, layout: Q8_0, lossy: allow}}\n");
  const Finished lossy =
      run_program({ktx_compile(), model_gguf("qwen3moe"), rounded, "--selftest", "1", "-o", plan_});
  EXPECT_EQ(lossy.status, 1);
  EXPECT_THAT(lossy.err, HasSubstr("no --selftest: a rule had weights rounded"));
}

}  // namespace
}  // namespace ktx::testing
