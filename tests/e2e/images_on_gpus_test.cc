// Models that see, on GPUs in host memory: rows of images, logits and ids are those of the CPU,
// wherever the language model, its experts and the tower stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/plan/device_memory.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/images/image_tokens.h"
#include "lib/runtime/session/session.h"
#include "tests/support/draft_plans.h"
#include "tests/support/host_gpu.h"
#include "tests/support/seeing_model.h"
#include "tests/support/seeing_qwen3.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::EngineOptions;
using runtime::ImageReader;
using runtime::ImageTokens;
using runtime::ReadImage;
using ::testing::HasSubstr;

constexpr int kGemma3 = -1, kMinistral3 = -2, kWide = -3;

// A model, and the grids of the images in its prompt.
struct Seeing {
  const char* name;
  int model;  // number of kQwen3Cases, or one of these above
  int64_t lines, columns;
};
const Seeing kSeeing[] = {{"qwen3_vl", 0, 8, 6}, {"qwen3_vl_moe", 1, 6, 9},
                          {"qwen3_5", 2, 4, 10}, {"gemma3", kGemma3, 6, 6},
                          {"wide", kWide, 4, 6}, {"ministral3", kMinistral3, 4, 8}};

struct Placing {
  const char* name;
  std::vector<std::string> options;
};
std::vector<Placing> placings(const TempDir& dir) {
  const std::string h200 = "--target=" + source_dir() + "/targets/h200.yaml";
  const std::string two = dir.write("two.yaml", R"(name: two
gpus:
  - {name: A, compute_capability: 9.0, memory_gib: 80, bandwidth_gbps: 3000, pcie_gbps: 50, count: 2}
cpu: {isa: avx512, cores: 8, memory_gib: 64, bandwidth_gbps: 100, numa_nodes: 1}
)");
  const auto rules = [](const char* file) { return source_dir() + "/rules/" + file; };
  return {{"all on a GPU", {h200}},
          {"experts on the CPU", {h200, rules("moe-experts-on-cpu.yaml")}},
          {"the tower on the CPU", {h200, "--mmproj-rules", rules("cpu-only.yaml")}},
          {"layers over two GPUs", {"--target=" + two, rules("spread-gpus.yaml")}}};
}

class ImagesOnGpus : public ::testing::TestWithParam<Seeing> {
 protected:
  void SetUp() override {
    model_ = dir_.path("m.gguf");
    if (GetParam().model >= 0) {
      ASSERT_TRUE(write_qwen3(dir_, kQwen3Cases[GetParam().model]));
    } else if (GetParam().model == kWide) {
      ASSERT_TRUE(write_qwen3(dir_, kWideQwen3));
    } else if (GetParam().model == kMinistral3) {
      write_ministral3();
    } else {
      ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf")));
      model_ = test_model_gguf("gemma3");
    }
    compile({});
    if (HasFatalFailure()) return;
    reader_ = open_reader(on_cpu());
    ASSERT_TRUE(reader_);
    const auto engine = open_engine(plan_, on_cpu());
    ASSERT_TRUE(engine);
    prompt_ = prompt_of(*reader_);
    wanted_ = answer(*engine, prompt_);
  }
  void write_ministral3() {
    const auto config = input::HfConfig::read(source_dir() + "/tests/models/synthetic/ministral3");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto made = synth::synthesise(*config, {.types = "f32", .strong = true});
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(made->write(dir_.path("plain.gguf")));
    write_with_tokens(dir_.path("plain.gguf"), model_,
                      {{300, "[IMG]"}, {301, "[IMG_BREAK]"}, {302, "[IMG_END]"}});
    ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf"), {.image = 36,
                                                       .patch = 3,
                                                       .pool = 2,
                                                       .hidden = 48,
                                                       .heads = 3,
                                                       .layers = 2,
                                                       .width = 192,
                                                       .projector = "pixtral"}));
  }
  void compile(std::vector<std::string> options) {
    options.insert(options.begin(),
                   {"--mmproj", dir_.path("mmproj.gguf"), "--max-batch", "3", "--ctx", "256"});
    compile_with(model_, plan_, options);
  }
  static EngineOptions on_cpu() {
    EngineOptions options;
    options.threads = 2;
    options.precision = runtime::Precision::Exact;
    return options;
  }
  EngineOptions on_gpu() {
    EngineOptions options = on_cpu();
    options.open_gpu = HostGpu::opener({}, &log_);
    return options;
  }
  std::unique_ptr<ImageReader> open_reader(const EngineOptions& options) {
    auto reader = ImageReader::open(plan_, options);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    return reader.ok() ? reader.take() : nullptr;
  }
  static ReadImage read(ImageReader& reader, uint32_t seed) {
    const auto image =
        reader.read(random_patches(reader.facts(), GetParam().lines, GetParam().columns, seed));
    EXPECT_TRUE(image.ok()) << image.error().message;
    return image.ok() ? *image : ReadImage{};
  }
  // Two images with text before, between and behind.
  struct Prompt {
    std::vector<int32_t> ids;
    std::vector<ImageTokens> images;
  };
  static Prompt prompt_of(ImageReader& reader) {
    Prompt prompt{{2, 7, 12}, {}};
    for (const uint32_t seed : {1, 2}) {
      runtime::add_image(read(reader, seed), reader.facts(), {}, prompt.ids, prompt.images);
      prompt.ids.insert(prompt.ids.end(), {64, 33, 290});
    }
    return prompt;
  }
  struct Answer {
    std::vector<float> logits;  // of the prompt
    std::vector<int32_t> ids;   // that follow
  };
  static runtime::Session session_of(runtime::Engine& engine) {
    runtime::SamplingOptions greedy;
    greedy.temperature = 0;
    return runtime::Session(engine, *runtime::Sampler::create(greedy, engine.vocab_size()));
  }
  static Answer answer(runtime::Session& session, const Prompt& prompt) {
    session.show_images(prompt.images);
    const auto set = session.set_prompt(prompt.ids);
    EXPECT_TRUE(set.ok()) << set.error().message;
    Answer out{{session.logits().begin(), session.logits().end()}, {}};
    for (int i = 0; i < 12; ++i) {
      const auto next = session.next();
      EXPECT_TRUE(next.ok()) << next.error().message;
      if (!next) break;
      out.ids.push_back(next->id);
    }
    return out;
  }
  static Answer answer(runtime::Engine& engine, const Prompt& prompt) {
    runtime::Session session = session_of(engine);
    return answer(session, prompt);
  }
  static void expect_close(std::span<const float> got, std::span<const float> wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << i;
    }
  }
  void expect_same(const Answer& got) {
    expect_close(got.logits, wanted_.logits);
    EXPECT_EQ(got.ids, wanted_.ids);
  }

  const TempDir dir_;
  const std::string plan_ = dir_.path("m.ktxplan");
  std::string model_;
  std::unique_ptr<ImageReader> reader_;
  Prompt prompt_;
  Answer wanted_;
  HostGpuLog log_;
};

TEST_P(ImagesOnGpus, GiveTheRowsAndAnswersOfTheCpu) {
  for (const Placing& placing : placings(dir_)) {
    SCOPED_TRACE(placing.name);
    compile(placing.options);
    if (HasFatalFailure()) return;
    const bool tower_on_gpu = std::string(placing.name) != "the tower on the CPU";
    const auto tower = plan::PlanFile::open(plan_, {.tower = true});
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    EXPECT_EQ(plan::uses_gpus(tower->view()), tower_on_gpu);
    const auto reader = open_reader(on_gpu());
    ASSERT_TRUE(reader);
    const Prompt prompt = prompt_of(*reader);
    ASSERT_EQ(prompt.ids, prompt_.ids);
    for (size_t i = 0; i < prompt.images.size(); ++i) {
      expect_close(*prompt.images[i].rows, *prompt_.images[i].rows);
    }
    if (HasFatalFailure()) return;
    EngineOptions options = on_gpu();
    for (const int64_t chunk : {256, 5, 16, 23}) {
      if (!reader->facts().causal && chunk < 9) continue;  // an image is one pass
      SCOPED_TRACE(chunk);
      options.chunk_tokens = chunk;
      const auto engine = open_engine(plan_, options);
      ASSERT_TRUE(engine);
      EXPECT_TRUE(plan::uses_gpus(engine->plan()));
      expect_same(answer(*engine, prompt));
    }
  }
  EXPECT_GT(log_.graph_launches, 0);
}

// The second of two images is another one, and the text before it comes from the cache.
TEST_P(ImagesOnGpus, GoOnFromTheCache) {
  compile(placings(dir_)[0].options);
  if (HasFatalFailure()) return;
  const auto engine = open_engine(plan_, on_gpu());
  ASSERT_TRUE(engine);
  runtime::Session session = session_of(*engine);
  Prompt other = prompt_;
  other.ids.back() = 82;
  (void)answer(session, other);
  session.reset_stats();
  expect_same(answer(session, prompt_));
  EXPECT_GT(session.stats().reused_tokens, prompt_.images.back().end() - 1);
}

// With and without images, in one pass.
TEST_P(ImagesOnGpus, StandBesideTextsInABatch) {
  const std::vector<int32_t> text = {9, 77, 203, 45, 18};
  const auto rows = [&](runtime::Engine& engine) {
    runtime::Sequence first = engine.new_sequence(), second = engine.new_sequence(),
                      third = engine.new_sequence();
    BatchItem items[] = {{&first, text}, {&second, prompt_.ids}, {&third, text}};
    items[1].images = prompt_.images;
    const auto done = engine.forward(items);
    EXPECT_TRUE(done.ok()) << done.error().message;
    std::vector<float> all;
    for (int64_t row = 0; row < engine.logits_rows(); ++row) {
      all.insert(all.end(), engine.logits(row).begin(), engine.logits(row).end());
    }
    return all;
  };
  const auto cpu = open_engine(plan_, on_cpu());
  ASSERT_TRUE(cpu);
  const std::vector<float> wanted = rows(*cpu);
  compile(placings(dir_)[0].options);
  if (HasFatalFailure()) return;
  const auto gpu = open_engine(plan_, on_gpu());
  ASSERT_TRUE(gpu);
  expect_close(rows(*gpu), wanted);
}

// Passes of a few tokens behind images, as those that verify draft tokens, again and again: they
// become graphs.
TEST_P(ImagesOnGpus, VerifyDraftTokensBehindThem) {
  const std::vector<int32_t> drafted = {9, 77, 203, 45, 18};
  const auto rows = [&](EngineOptions options, int times) {
    options.all_logits = true;
    const auto engine = open_engine(plan_, options);
    EXPECT_TRUE(engine);
    runtime::Sequence sequence = engine->new_sequence();
    std::vector<float> all;
    for (int i = 0; i <= times; ++i) {
      const std::vector<int32_t>& tokens = i == 0 ? prompt_.ids : drafted;
      BatchItem item{&sequence, tokens, i == 0 ? runtime::Want::Last : runtime::Want::All};
      item.images = prompt_.images;
      const auto done = engine->forward({&item, 1});
      EXPECT_TRUE(done.ok()) << done.error().message;
      all.clear();
      for (int64_t row = 0; row < engine->logits_rows(); ++row) {
        all.insert(all.end(), engine->logits(row).begin(), engine->logits(row).end());
      }
      const auto length = static_cast<int64_t>(prompt_.ids.size());
      if (i == times || !sequence.can_truncate(length)) break;
      sequence.truncate(length);
    }
    return all;
  };
  const std::vector<float> wanted = rows(on_cpu(), 1);
  compile(placings(dir_)[0].options);
  if (HasFatalFailure()) return;
  const int64_t before = log_.graph_launches;
  expect_close(rows(on_gpu(), 70), wanted);
  EXPECT_GT(log_.graph_launches, before);
  // Behind images, too, attention is one kernel with its norms and rotation.
  if (GetParam().model != kWide) return;
  const auto plan = plan::PlanFile::open(plan_);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_GT(
      std::ranges::count(plan->view().program->launches, FusedOp::Attention, &program::Launch::op),
      0);
}

INSTANTIATE_TEST_SUITE_P(, ImagesOnGpus, ::testing::ValuesIn(kSeeing),
                         [](const auto& info) { return std::string(info.param.name); });

// A GPU too small for the tower beside the model leaves it to the CPU, and the compiler says so.
TEST(SmallGpu, LeavesTheTowerToTheCpu) {
  const TempDir dir;
  ASSERT_TRUE(write_qwen3(dir, kQwen3Cases[0]));
  const Finished run = run_program(
      {ktx_compile(), dir.path("m.gguf"), "-o", dir.path("m.ktxplan"), "--mmproj",
       dir.path("mmproj.gguf"), "--target=" + source_dir() + "/targets/h200.yaml", "--vram", "1M"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the projector is on the CPU: it takes more of"));
  const auto tower = plan::PlanFile::open(dir.path("m.ktxplan"), {.tower = true});
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  EXPECT_FALSE(plan::uses_gpus(tower->view()));
}

// Rules may put the tower on another GPU than the first.
TEST(RulesOfATower, NameAGpu) {
  const TempDir dir;
  ASSERT_TRUE(write_qwen3(dir, kQwen3Cases[0]));
  const std::string rules = dir.write("second.yaml", R"(version: 1
rules:
  - id: all
    match: {name: "."}
    replace: {device: "cuda:1"}
)");
  std::vector<std::string> line = placings(dir).back().options;  // of two GPUs
  line.insert(line.end(), {"--mmproj", dir.path("mmproj.gguf"), "--mmproj-rules", rules});
  compile_with(dir.path("m.gguf"), dir.path("m.ktxplan"), line);
  if (::testing::Test::HasFatalFailure()) return;
  const auto tower = plan::PlanFile::open(dir.path("m.ktxplan"), {.tower = true});
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  EXPECT_EQ(plan::plan_gpus(tower->view()), std::vector<std::string>{"cuda:1"});
}

}  // namespace
}  // namespace ktx::testing
