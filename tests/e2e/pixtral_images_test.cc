// Images of models of Mistral's: towers compiled into plans, their rows and what the model answers
// against transformers (make_image_rows.py), images line by line in a text.
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
#include "lib/input/hf_config.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/images/image_tokens.h"
#include "lib/runtime/session/session.h"
#include "lib/target/isa.h"
#include "tests/support/draft_plans.h"
#include "tests/support/image_rows.h"
#include "tests/support/image_samples.h"
#include "tests/support/named_tokens.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tower_gguf.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using runtime::EngineOptions;
using runtime::ImageReader;
using runtime::ImageTokens;
using runtime::ReadImage;
using ::testing::HasSubstr;

constexpr int32_t kMark = 300, kBreak = 301, kEnd = 302;
const std::map<int32_t, std::string> kTokens = {
    {kMark, "[IMG]"}, {kBreak, "[IMG_BREAK]"}, {kEnd, "[IMG_END]"}};

struct PixtralCase {
  const char* name;
  TowerOptions options;
};
const PixtralCase kCases[] = {
    {"pixtral",
     {.image = 36,
      .patch = 3,
      .pool = 2,
      .hidden = 48,
      .heads = 3,
      .inner = 56,
      .layers = 3,
      .width = 192,
      .seed = 21,
      .projector = "pixtral"}},
    {"pixtral_biased",
     {.image = 50,
      .patch = 5,
      .pool = 3,
      .hidden = 40,
      .heads = 2,
      .inner = 33,
      .layers = 1,
      .width = 192,
      .seed = 22,
      .projector = "pixtral",
      .biased = true}},
};

// Names of make_image_rows.py's patterns; the first one stands in the prompt.
const struct {
  const char* name;
  int64_t width, height;
} kPatterns[] = {
    {"prompt", 23, 17},  {"portrait", 20, 41}, {"wide", 70, 9},   {"pixel", 1, 1},
    {"huge", 1000, 733}, {"line", 33, 1},      {"exact", 30, 15},
};
// Names of kImageSamples; the script reads their files.
const char* const kSamples[] = {"rgb", "grey", "palette", "jpeg", "cmyk", "turned"};

// One of the synthetic generator.
void write_model(const std::string& path) {
  const auto config = input::HfConfig::read(source_dir() + "/tests/models/synthetic/ministral3");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto made = synth::synthesise(*config, {.types = "f32", .strong = true});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(made->write(path + ".plain"));
  write_with_tokens(path + ".plain", path, kTokens);
}

class PixtralImages : public ::testing::Test {
 protected:
  void SetUp() override {
    write_model(dir_.path("m.gguf"));
    if (HasFatalFailure()) return;
    std::ofstream(dir_.path("image.png"), std::ios::binary) << from_base64(kImageSamples[0].base64);
    // For make_image_rows.py.
    if (const char* folder = std::getenv("KTX_KEEP_TOWERS")) {
      keep(folder, "m.gguf", "ministral3.gguf");
      for (const ImageSample& sample : kImageSamples) {
        std::ofstream(fmt::format("{}/{}.image", folder, sample.name), std::ios::binary)
            << from_base64(sample.base64);
      }
    }
  }
  void keep(const std::string& folder, const char* file, const std::string& as) {
    std::filesystem::copy_file(dir_.path(file), folder + "/" + as,
                               std::filesystem::copy_options::overwrite_existing);
  }
  void compile(const TowerOptions& options) {
    ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf"), options).ok());
    compile_with(dir_.path("m.gguf"), dir_.path("m.ktxplan"),
                 {"--mmproj", dir_.path("mmproj.gguf")});
    if (const char* folder = std::getenv("KTX_KEEP_TOWERS")) {
      keep(folder, "mmproj.gguf", fmt::format("{}.gguf", options.seed));
    }
  }
  std::string compile_fails(const TowerOptions& options, const std::string& model) {
    EXPECT_TRUE(write_tower(dir_.path("mmproj.gguf"), options).ok());
    const Finished run = run_program({ktx_compile(), "-q", model, "-o", dir_.path("bad.ktxplan"),
                                      "--mmproj", dir_.path("mmproj.gguf")});
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_FALSE(std::filesystem::exists(dir_.path("bad.ktxplan")));
    return run.err;
  }
  std::unique_ptr<ImageReader> open_reader(EngineOptions options = {}) {
    options.threads = 2;
    options.precision = runtime::Precision::Exact;
    auto reader = ImageReader::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    return reader.ok() ? reader.take() : nullptr;
  }
  static ReadImage read(ImageReader& reader, const images::Image& image) {
    auto rows = reader.read(images::patches_of(image, reader.facts()));
    EXPECT_TRUE(rows.ok()) << rows.error().message;
    return rows.ok() ? *rows : ReadImage{};
  }
  static images::Image sample(std::string_view name) {
    const auto found = std::ranges::find(kImageSamples, name, &ImageSample::name);
    const std::string file = from_base64(found->base64);
    return *images::decode_image(std::as_bytes(std::span(file)));
  }

  const TempDir dir_;
};

TEST_F(PixtralImages, RowsAndAnswersAreThoseOfTransformers) {
  for (const PixtralCase& c : kCases) {
    SCOPED_TRACE(c.name);
    compile(c.options);
    if (HasFatalFailure()) return;
    ExpectedRows wanted = expected_rows(c.name);
    for (const Isa isa : usable_isas()) {
      EngineOptions options;
      options.isa = isa;
      options.precision = runtime::Precision::Exact;
      const auto reader = open_reader(options);
      ASSERT_TRUE(reader);
      const auto compare = [&](const std::string& name, const ReadImage& image) {
        SCOPED_TRACE(name);
        const std::string of = name == "prompt" ? "" : ":" + name;
        ASSERT_TRUE(image.rows);
        ASSERT_FALSE(wanted["every" + of].empty());
        expect_near(*image.rows, wanted["rows" + of], static_cast<size_t>(wanted["every" + of][0]));
      };
      for (const auto& p : kPatterns) {
        compare(p.name, read(*reader, image_pattern(p.width, p.height)));
        if (HasFatalFailure()) return;
      }
      for (const char* name : kSamples) {
        compare(name, read(*reader, sample(name)));
        if (HasFatalFailure()) return;
      }
      const ReadImage image = read(*reader, image_pattern(23, 17));
      const auto engine = open_engine(dir_.path("m.ktxplan"), options);
      ASSERT_TRUE(engine);
      runtime::SamplingOptions greedy;
      greedy.temperature = 0;
      runtime::Session session(*engine, *runtime::Sampler::create(greedy, engine->vocab_size()));
      std::vector<int32_t> ids = {7, 12};
      std::vector<ImageTokens> runs;
      runtime::add_image(image, reader->facts(), std::vector{kBreak}, ids, runs);
      ids.insert(ids.end(), {kEnd, 64, 33, 290});
      session.show_images(runs);
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

// The same patches in another grid are another image.
TEST_F(PixtralImages, OfOtherShapesAreDistinguished) {
  compile(kCases[0].options);
  if (HasFatalFailure()) return;
  const auto reader = open_reader();
  ASSERT_TRUE(reader);
  const auto grey = [](int64_t width, int64_t height) {
    return images::Image{width, height,
                         std::vector<uint8_t>(static_cast<size_t>(3 * width * height), 90)};
  };
  const ReadImage wide = read(*reader, grey(12, 6)), tall = read(*reader, grey(6, 12));
  EXPECT_NE(wide.id, tall.id);
  EXPECT_EQ(wide.columns, 2);
  EXPECT_EQ(tall.columns, 1);
  EXPECT_EQ(wide.tokens, tall.tokens);
  plan::ImagePatches patches = images::patches_of(grey(12, 6), reader->facts());
  for (const int64_t columns : {0, 3, 16}) {
    patches.columns = columns;
    EXPECT_FALSE(reader->read(patches).ok()) << columns;
  }
  patches.columns = 4;
  patches.floats.pop_back();
  EXPECT_THAT(reader->read(patches).error().message, HasSubstr("expected at most 12 lines of 12"));
}

// Line by line with a token between two lines, wherever chunks end.
TEST_F(PixtralImages, StandInThePromptLineByLine) {
  compile(kCases[0].options);
  if (HasFatalFailure()) return;
  const auto generate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {ktx_run(),
                                     "generate",
                                     dir_.path("m.ktxplan"),
                                     "--json",
                                     "--precision",
                                     "exact",
                                     "-n",
                                     "6",
                                     "--temp",
                                     "0",
                                     "--prompt",
                                     "the [IMG] and",
                                     "--image",
                                     dir_.path("image.png"),
                                     "--logprobs",
                                     "1"};
    line.insert(line.end(), more.begin(), more.end());
    const Finished run = run_program(line);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? nlohmann::json::parse(run.out) : nlohmann::json();
  };
  const nlohmann::json whole = generate({});
  ASSERT_TRUE(whole.contains("prompt_ids"));
  const auto ids = whole["prompt_ids"].get<std::vector<int32_t>>();
  // 7 x 5 pixels are one line of two squares.
  const auto image = std::ranges::find(ids, -2);
  ASSERT_LT(image + 2, ids.end());
  EXPECT_EQ(image[1], -2);
  EXPECT_EQ(image[2], kEnd);
  EXPECT_EQ(std::ranges::count(ids, kMark), 0);
  for (const char* chunk : {"2", "3", "4"}) {
    EXPECT_EQ(generate({"--chunk", chunk})["steps"], whole["steps"]) << chunk;
  }
}

// As Mistral Small 3.1 and 3.2 were at first.
TEST_F(PixtralImages, OfModelsThatAreStoredAsLlama) {
  write_with_tokens(test_model_gguf("llama"), dir_.path("m.gguf"), kTokens);
  TowerOptions options = kCases[1].options;
  options.width = 256;
  compile(options);
  if (HasFatalFailure()) return;
  const Finished run =
      run_program({ktx_run(), "generate", dir_.path("m.ktxplan"), "--json", "-n", "4", "--temp",
                   "0", "--prompt", "a fox", "--image", dir_.path("image.png")});
  EXPECT_EQ(run.status, 0) << run.err;
  const auto ids = nlohmann::json::parse(run.out)["prompt_ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(std::ranges::count(ids, -2), 1);
  EXPECT_EQ(std::ranges::count(ids, kEnd), 1);
}

TEST_F(PixtralImages, ProjectorsAreEstimatedAndRefused) {
  TowerOptions options = kCases[0].options;
  ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf"), options).ok());
  const Finished run = run_program(
      {ktx_compile(), "--estimate", dir_.path("m.gguf"), "--mmproj", dir_.path("mmproj.gguf")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("an image is at most 36 tokens, made of 144 patches"));

  const auto fails = [&](auto&& change) {
    TowerOptions changed = options;
    change(changed);
    return compile_fails(changed, dir_.path("m.gguf"));
  };
  const auto without = [&](const char* left_out) {
    return fails([&](TowerOptions& o) {
      o.leaves_out = [=](const std::string& name) { return name == left_out; };
    });
  };
  EXPECT_THAT(without("spatial_merge_size"), HasSubstr("clip.vision.spatial_merge_size"));
  EXPECT_THAT(without("mm.input_norm.weight"), HasSubstr("tensor 'mm.input_norm.weight'"));
  EXPECT_THAT(without("mm.patch_merger.weight"), HasSubstr("tensor 'mm.patch_merger.weight'"));
  EXPECT_THAT(without("v.blk.1.ffn_gate.weight"), HasSubstr("tensor 'v.blk.1.ffn_gate.weight'"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.hidden = 54, o.heads = 3; }),
              HasSubstr("heads of 18 elements, expected a multiple of 4"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.width = 128; }),
              HasSubstr("rows have 128 elements (projection_dim)"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.image = 4096, o.patch = 2; }),
              HasSubstr("patches, expected at most 65536"));
  options.width = 256;
  EXPECT_THAT(compile_fails(options, test_model_gguf("llama")),
              HasSubstr("the model has no token '[IMG_BREAK]'"));
}

}  // namespace
}  // namespace ktx::testing
