// Images: towers compiled into plans, their rows and what models answer against transformers
// (make_image_rows.py), and projectors that are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/images/decode.h"
#include "lib/images/patches.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/session/session.h"
#include "lib/target/isa.h"
#include "tests/support/draft_plans.h"
#include "tests/support/image_rows.h"
#include "tests/support/image_samples.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tower_gguf.h"

namespace ktx::testing {
namespace {

using runtime::EngineOptions;
using runtime::ImageReader;
using runtime::ImageTokens;
using runtime::ReadImage;
using ::testing::HasSubstr;

constexpr const char* kPrompt = "Tell me a story about a fox.";

struct Tower {
  const char* name;
  TowerOptions options;
};
const Tower kTowers[] = {
    {"small", {}},
    {"tall",
     {.image = 30,
      .patch = 5,
      .pool = 3,
      .hidden = 24,
      .heads = 3,
      .inner = 20,
      .layers = 2,
      .seed = 5,
      .old_names = true}},
    {"unpooled",
     {.image = 21,
      .patch = 3,
      .pool = 1,
      .hidden = 72,
      .heads = 1,
      .inner = 33,
      .layers = 1,
      .seed = 9}},
};

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = test_model_gguf("gemma3");
    ASSERT_FALSE(model_.empty());
    write_file(dir_.path("image.png"), from_base64(kImageSamples[0].base64));
    write_file(dir_.path("other.jpg"), from_base64(kImageSamples[5].base64));
  }
  // m.ktxplan, with a tower.
  void compile(const TowerOptions& options, const std::vector<std::string>& more = {}) {
    ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf"), options).ok());
    std::vector<std::string> line = {"--mmproj", dir_.path("mmproj.gguf")};
    line.insert(line.end(), more.begin(), more.end());
    compile_with(model_, dir_.path("m.ktxplan"), line);
    // For make_image_rows.py.
    if (const char* keep = std::getenv("KTX_KEEP_TOWERS")) {
      std::filesystem::copy_file(dir_.path("mmproj.gguf"),
                                 fmt::format("{}/{}.gguf", keep, options.seed),
                                 std::filesystem::copy_options::overwrite_existing);
    }
  }
  // What ktx-compile says of it.
  Finished compile_fails(const TowerOptions& options, const std::vector<std::string>& more = {}) {
    EXPECT_TRUE(write_tower(dir_.path("mmproj.gguf"), options).ok());
    std::vector<std::string> line = {
        ktx_compile(),           "-q", model_, "-o", dir_.path("bad.ktxplan"), "--mmproj",
        dir_.path("mmproj.gguf")};
    line.insert(line.end(), more.begin(), more.end());
    Finished run = run_program(line);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_FALSE(std::filesystem::exists(dir_.path("bad.ktxplan")));
    return run;
  }
  std::unique_ptr<ImageReader> open_reader(EngineOptions options = {}) {
    options.threads = 2;
    options.precision = runtime::Precision::Exact;
    auto reader = ImageReader::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    return reader.ok() ? reader.take() : nullptr;
  }
  ReadImage read(ImageReader& reader, const ImageSample& sample) {
    const std::string file = from_base64(sample.base64);
    const auto image = images::decode_image(std::as_bytes(std::span(file)));
    EXPECT_TRUE(image.ok()) << image.error().message;
    auto rows = reader.read(images::patches_of(*image, reader.facts()));
    EXPECT_TRUE(rows.ok()) << rows.error().message;
    return rows.ok() ? *rows : ReadImage{};
  }
  nlohmann::json generate(const std::vector<std::string>& more) {
    std::vector<std::string> line = {ktx_run(), "generate",    dir_.path("m.ktxplan"),
                                     "--json",  "--precision", "exact",
                                     "-n",      "8",           "--temp",
                                     "0",       "--chat",      "--logprobs",
                                     "1",       "--prompt",    kPrompt};
    line.insert(line.end(), more.begin(), more.end());
    const Finished run = run_program(line);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? nlohmann::json::parse(run.out) : nlohmann::json();
  }

  const TempDir dir_;
  std::string model_;
};

TEST_F(Images, RowsAndAnswersAreThoseOfTransformers) {
  for (const Tower& tower : kTowers) {
    SCOPED_TRACE(tower.name);
    compile(tower.options);
    if (HasFatalFailure()) return;
    auto wanted = expected_rows(tower.name);
    for (const Isa isa : usable_isas()) {
      EngineOptions options;
      options.isa = isa;
      options.precision = runtime::Precision::Exact;
      const auto reader = open_reader(options);
      ASSERT_TRUE(reader);
      const ReadImage image = read(*reader, kImageSamples[0]);
      ASSERT_TRUE(image.rows);
      expect_near(*image.rows, wanted["rows"], static_cast<size_t>(wanted["every"].at(0)));
      if (HasFatalFailure()) return;
      const auto engine = open_engine(dir_.path("m.ktxplan"), options);
      ASSERT_TRUE(engine);
      runtime::SamplingOptions greedy;
      greedy.temperature = 0;
      runtime::Session session(*engine, *runtime::Sampler::create(greedy, engine->vocab_size()));
      std::vector<int32_t> ids = {2, 6, 856};
      ids.insert(ids.end(), static_cast<size_t>(image.tokens), image.id);
      ids.insert(ids.end(), {471, 323});
      session.show_images({ImageTokens{3, image.tokens, image.rows}});
      const auto set = session.set_prompt(ids);
      ASSERT_TRUE(set.ok()) << set.error().message;
      expect_near(session.logits(), wanted["logits"], 97);
      if (HasFatalFailure()) return;
      for (const double id : wanted["ids"]) {
        const auto next = session.next();
        ASSERT_TRUE(next.ok()) << next.error().message;
        EXPECT_EQ(next->id, static_cast<int32_t>(id));
      }
    }
  }
}

TEST_F(Images, ChunksEndOutsideOfThem) {
  compile({});
  if (HasFatalFailure()) return;
  const nlohmann::json whole = generate({"--image", dir_.path("image.png")});
  ASSERT_GT(whole["ids"].size(), 3u);
  for (const char* chunk : {"9", "13", "16"}) {
    const nlohmann::json cut = generate({"--image", dir_.path("image.png"), "--chunk", chunk});
    EXPECT_EQ(cut["steps"], whole["steps"]) << chunk;
  }
  const Finished run = run_program({ktx_run(), "generate", dir_.path("m.ktxplan"), "--prompt",
                                    kPrompt, "--chunk", "8", "--image", dir_.path("image.png")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("an image has more tokens than a step of 8 may have"));
}

// A conversation goes on from an image that it has; another image is another text.
TEST_F(Images, AreDistinguishedInTheCache) {
  compile({});
  if (HasFatalFailure()) return;
  const auto reader = open_reader();
  ASSERT_TRUE(reader);
  const ReadImage first = read(*reader, kImageSamples[0]);
  const ReadImage second = read(*reader, kImageSamples[5]);
  const ReadImage again = read(*reader, kImageSamples[0]);
  EXPECT_LT(first.id, -1);
  EXPECT_NE(first.id, second.id);
  EXPECT_EQ(first.id, again.id);
  EXPECT_EQ(reader->computed(), 2);

  EngineOptions options;
  options.precision = runtime::Precision::Exact;
  const auto engine = open_engine(dir_.path("m.ktxplan"), options);
  ASSERT_TRUE(engine);
  runtime::Session session(*engine, *runtime::Sampler::create({}, engine->vocab_size()));
  const auto answer = [&](const ReadImage& image) {
    std::vector<int32_t> ids = {2, 856};
    ids.insert(ids.end(), static_cast<size_t>(image.tokens), image.id);
    ids.insert(ids.end(), {471, 323});
    session.show_images({ImageTokens{2, image.tokens, image.rows}});
    session.reset_stats();
    const auto set = session.set_prompt(ids);
    EXPECT_TRUE(set.ok()) << set.error().message;
    return std::vector<float>(session.logits().begin(), session.logits().end());
  };
  const std::vector<float> of_first = answer(first);
  const std::vector<float> of_second = answer(second);
  EXPECT_EQ(session.stats().reused_tokens, 2);
  EXPECT_NE(of_first, of_second);
  EXPECT_EQ(answer(second), of_second);
  EXPECT_EQ(session.stats().reused_tokens, 2 + second.tokens + 1);
  EXPECT_EQ(answer(first), of_first);
  EXPECT_EQ(session.stats().reused_tokens, 2);
}

TEST_F(Images, StandWhereThePromptMarksThem) {
  compile({});
  if (HasFatalFailure()) return;
  const std::string png = dir_.path("image.png"), jpg = dir_.path("other.jpg");
  const nlohmann::json both = generate({"--image", png, "--image", jpg});
  std::map<int32_t, int> counts;
  for (const int32_t id : both["prompt_ids"].get<std::vector<int32_t>>()) ++counts[std::min(id, 0)];
  EXPECT_EQ(counts[-2], 9);
  EXPECT_EQ(counts[-3], 9);
  const Finished run = run_program({ktx_run(), "generate", dir_.path("m.ktxplan"), "--prompt",
                                    "<start_of_image> and <start_of_image>", "--image", png});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("the prompt has '<start_of_image>' 2 times for 1 images"));
}

TEST_F(Images, NeedAPlanWithAProjector) {
  compile_with(model_, dir_.path("m.ktxplan"), {});
  const Finished run = run_program({ktx_run(), "generate", dir_.path("m.ktxplan"), "--prompt",
                                    kPrompt, "--image", dir_.path("image.png")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("compile the model with its projector"));
}

TEST_F(Images, OfAProjectorAreCheckedAndEstimated) {
  ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf")).ok());
  const Finished run =
      run_program({ktx_compile(), "--estimate", model_, "--mmproj", dir_.path("mmproj.gguf")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("an image is 9 tokens, made of 36 patches"));
}

// Each names the file, and the key or tensor with what it holds.
TEST_F(Images, ProjectorsThatDoNotFitAreRefused) {
  const auto number = [](const char* key, int64_t value) {
    return TowerOptions{.edit_number = [=](const std::string& name, int64_t is) {
      return name == key ? value : is;
    }};
  };
  const auto shape = [](const char* tensor, size_t dim, int64_t value) {
    return TowerOptions{.edit_shape = [=](const std::string& name, std::vector<int64_t>& all) {
      if (name == tensor) all[dim] = value;
    }};
  };
  const auto without = [](const char* left_out) {
    return TowerOptions{.leaves_out = [=](const std::string& name) { return name == left_out; }};
  };
  const struct {
    TowerOptions options;
    const char* says;
  } cases[] = {
      {without("image_size"), "clip.vision.image_size"},
      {without("image_mean"), "clip.vision.image_mean"},
      {number("patch_size", 7), "'clip.vision.patch_size' 7 does not divide"},
      {number("image_size", 1 << 30), "'clip.vision.image_size'"},
      {number("attention.head_count", 0), "'clip.vision.attention.head_count'"},
      {number("projector.scale_factor", 5), "does not divide the 6 patches of a side"},
      {number("projection_dim", 128), "mm.input_projection.weight"},
      {number("block_count", 4), "'v.blk.3.ln1.weight'"},
      {{.width = 128},
       "rows have 128 elements (projection_dim), those of the model's embedding 256"},
      {{.image = 54, .patch = 6, .pool = 1}, "an image has 81 tokens, more than the window of 64"},
      {{.projector = "llava"},
       "key 'clip.projector_type' is 'llava': no such projector is known; known are gemma3, pixtral"},
      {{.projector = "pixtral"}, "a projector for models of architecture 'mistral3' or 'llama'"},
      {without("v.blk.1.attn_k.weight"), "tensor 'v.blk.1.attn_k.weight'"},
      {without("mm.soft_emb_norm.weight"), "tensor 'mm.soft_emb_norm.weight'"},
      {shape("v.patch_embd.weight", 2, 4), "tensor 'v.patch_embd.weight'"},
      {shape("v.position_embd.weight", 1, 35), "tensor 'v.position_embd.weight'"},
      {shape("v.blk.0.ffn_up.weight", 1, 55), "tensor 'v.blk.0.ffn_up.weight'"},
  };
  for (const auto& c : cases) {
    const Finished run = compile_fails(c.options);
    EXPECT_THAT(run.err, HasSubstr(c.says));
    EXPECT_THAT(run.err, HasSubstr("mmproj.gguf")) << c.says;
  }
  const Finished alone =
      run_program({ktx_compile(), "-q", dir_.path("mmproj.gguf"), "-o", dir_.path("bad.ktxplan")});
  EXPECT_THAT(alone.err, HasSubstr("--mmproj"));
  const Finished model = run_program(
      {ktx_compile(), "-q", model_, "-o", dir_.path("bad.ktxplan"), "--mmproj", model_});
  EXPECT_THAT(model.err, HasSubstr("which is no projector for images"));
  const Finished other =
      run_program({ktx_compile(), "-q", test_model_gguf("llama"), "-o", dir_.path("bad.ktxplan"),
                   "--mmproj", dir_.path("mmproj.gguf")});
  EXPECT_THAT(other.err, HasSubstr("a projector for models of architecture 'gemma3'"));
}

}  // namespace
}  // namespace ktx::testing
