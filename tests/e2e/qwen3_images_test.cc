// Images of Qwen3-VL and Qwen3.5: towers compiled into plans, their rows and what models answer
// against transformers (make_image_rows.py), with positions by line and column and rows that are
// added behind the first layers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/images/decode.h"
#include "lib/images/patches.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/images/image_tokens.h"
#include "lib/runtime/session/session.h"
#include "lib/target/isa.h"
#include "tests/support/draft_plans.h"
#include "tests/support/image_rows.h"
#include "tests/support/image_samples.h"
#include "tests/support/seeing_qwen3.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::EngineOptions;
using runtime::ImageReader;
using runtime::ImageTokens;
using runtime::ReadImage;
using ::testing::HasSubstr;

// Names of make_image_rows.py's patterns; the first and the second stand in the prompt.
const struct {
  const char* name;
  int64_t width, height;
} kPatterns[] = {{"prompt", 43, 37},
                 {"portrait", 20, 41},
                 {"wide", 90, 11},
                 {"pixel", 1, 1},
                 {"huge", 1000, 733}};
// Names of kImageSamples, whose files it reads.
const char* const kSamples[] = {"rgb", "alpha", "turned"};

class Qwen3Images : public ::testing::Test {
 protected:
  void compile(const Qwen3Case& c, const std::vector<std::string>& more = {}) {
    write_model(c);
    if (HasFatalFailure()) return;
    std::vector<std::string> line = {"--mmproj", dir_.path("mmproj.gguf")};
    line.insert(line.end(), more.begin(), more.end());
    compile_with(dir_.path("m.gguf"), dir_.path("m.ktxplan"), line);
    // For make_image_rows.py.
    if (const char* folder = std::getenv("KTX_KEEP_TOWERS")) {
      for (const auto& [file, end] :
           {std::pair{"m.gguf", ".gguf"}, {"mmproj.gguf", ".mmproj"}, {"config.json", ".json"}}) {
        std::filesystem::copy_file(dir_.path(file), fmt::format("{}/{}{}", folder, c.name, end),
                                   std::filesystem::copy_options::overwrite_existing);
      }
      for (const ImageSample& sample : kImageSamples) {
        std::ofstream(fmt::format("{}/{}.image", folder, sample.name), std::ios::binary)
            << from_base64(sample.base64);
      }
    }
  }
  void write_model(const Qwen3Case& c) { ASSERT_TRUE(write_qwen3(dir_, c)); }
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
  // Two images with text before, between and behind.
  struct Prompt {
    std::vector<int32_t> ids;
    std::vector<ImageTokens> images;
  };
  static Prompt prompt_of(ImageReader& reader) {
    Prompt prompt{{7, 12, kStart}, {}};
    for (size_t i : {0, 1}) {
      const ReadImage image = read(reader, image_pattern(kPatterns[i].width, kPatterns[i].height));
      runtime::add_image(image, reader.facts(), {}, prompt.ids, prompt.images);
      if (i == 0) prompt.ids.insert(prompt.ids.end(), {kEnd, 64, 33, 290, kStart});
    }
    prompt.ids.insert(prompt.ids.end(), {kEnd, 5, 81});
    return prompt;
  }
  static runtime::Session greedy_session(runtime::Engine& engine) {
    runtime::SamplingOptions greedy;
    greedy.temperature = 0;
    return runtime::Session(engine, *runtime::Sampler::create(greedy, engine.vocab_size()));
  }
  // Logits of the prompt, and the ids that follow.
  struct Answer {
    std::vector<float> logits;
    std::vector<int32_t> ids;
  };
  static Answer answer(runtime::Session& session, const Prompt& prompt, int tokens = 16) {
    session.show_images(prompt.images);
    const auto set = session.set_prompt(prompt.ids);
    EXPECT_TRUE(set.ok()) << set.error().message;
    Answer out{{session.logits().begin(), session.logits().end()}, {}};
    for (int i = 0; i < tokens; ++i) {
      const auto next = session.next();
      EXPECT_TRUE(next.ok()) << next.error().message;
      if (!next) break;
      out.ids.push_back(next->id);
    }
    return out;
  }

  const TempDir dir_;
};

TEST_F(Qwen3Images, RowsAndAnswersAreThoseOfTransformers) {
  for (const Qwen3Case& c : kQwen3Cases) {
    SCOPED_TRACE(c.name);
    compile(c);
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
      const auto engine = open_engine(dir_.path("m.ktxplan"), options);
      ASSERT_TRUE(engine);
      runtime::Session session = greedy_session(*engine);
      const Answer got =
          answer(session, prompt_of(*reader), static_cast<int>(wanted["ids"].size()));
      expect_near(got.logits, wanted["logits"], 97);
      if (HasFatalFailure()) return;
      EXPECT_EQ(std::vector<double>(got.ids.begin(), got.ids.end()), wanted["ids"]);
      EXPECT_GE(got.ids.size(), 16u);
    }
  }
}

// Wherever a chunk ends, also within an image, and however much of it the cache has.
TEST_F(Qwen3Images, GiveTheSameInAnyChunksAndFromTheCache) {
  for (const Qwen3Case& c : kQwen3Cases) {
    SCOPED_TRACE(c.name);
    compile(c);
    if (HasFatalFailure()) return;
    const auto reader = open_reader();
    ASSERT_TRUE(reader);
    const Prompt prompt = prompt_of(*reader);
    EngineOptions options;
    options.precision = runtime::Precision::Exact;
    const auto engine = open_engine(dir_.path("m.ktxplan"), options);
    ASSERT_TRUE(engine);
    runtime::Session session = greedy_session(*engine);
    const Answer whole = answer(session, prompt);
    for (const int64_t chunk : {5, 16, 23}) {
      SCOPED_TRACE(chunk);
      options.chunk_tokens = chunk;
      const auto other = open_engine(dir_.path("m.ktxplan"), options);
      ASSERT_TRUE(other);
      runtime::Session cut = greedy_session(*other);
      const Answer got = answer(cut, prompt);
      EXPECT_EQ(got.logits, whole.logits);
      EXPECT_EQ(got.ids, whole.ids);
    }
    // The same beginning, with the first image.
    Prompt other = prompt;
    other.ids.back() = 82;
    (void)answer(session, other);
    session.reset_stats();
    const Answer again = answer(session, prompt);
    EXPECT_GT(session.stats().reused_tokens, prompt.images.back().end() - 1);
    EXPECT_EQ(again.logits, whole.logits);
    EXPECT_EQ(again.ids, whole.ids);
  }
}

// Beside each other in one pass, where each has positions of its own.
TEST_F(Qwen3Images, StandBesideTextsInABatch) {
  for (const Qwen3Case& c : kQwen3Cases) {
    SCOPED_TRACE(c.name);
    compile(c, {"--max-batch", "2"});
    if (HasFatalFailure()) return;
    const auto reader = open_reader();
    ASSERT_TRUE(reader);
    const Prompt prompt = prompt_of(*reader);
    const std::vector<int32_t> text = {9, 77, 203, 45, 18};
    EngineOptions options;
    options.precision = runtime::Precision::Exact;
    const auto engine = open_engine(dir_.path("m.ktxplan"), options);
    ASSERT_TRUE(engine);
    const auto logits = [&](std::span<const BatchItem> items) {
      std::vector<std::vector<float>> rows;
      const auto done = engine->forward(items);
      EXPECT_TRUE(done.ok()) << done.error().message;
      for (int64_t row = 0; row < engine->logits_rows(); ++row) {
        rows.emplace_back(engine->logits(row).begin(), engine->logits(row).end());
      }
      return rows;
    };
    std::vector<std::vector<float>> alone;
    for (const bool shows : {false, true}) {
      runtime::Sequence sequence = engine->new_sequence();
      BatchItem item{&sequence, shows ? prompt.ids : text};
      if (shows) item.images = prompt.images;
      alone.push_back(logits({&item, 1}).at(0));
    }
    runtime::Sequence first = engine->new_sequence(), second = engine->new_sequence();
    BatchItem items[] = {{&first, text}, {&second, prompt.ids}};
    items[1].images = prompt.images;
    EXPECT_EQ(logits(items), alone);
  }
}

// A text without images is to a plan with a tower what it is to one without.
TEST_F(Qwen3Images, ChangeNoTextWithoutThem) {
  for (const Qwen3Case& c : kQwen3Cases) {
    SCOPED_TRACE(c.name);
    compile(c);
    if (HasFatalFailure()) return;
    compile_with(dir_.path("m.gguf"), dir_.path("plain.ktxplan"), {});
    if (HasFatalFailure()) return;
    for (const Isa isa : usable_isas()) {
      EngineOptions options;
      options.isa = isa;
      options.precision = runtime::Precision::Exact;
      std::vector<Answer> answers;
      for (const char* plan : {"m.ktxplan", "plain.ktxplan"}) {
        const auto engine = open_engine(dir_.path(plan), options);
        ASSERT_TRUE(engine);
        runtime::Session session = greedy_session(*engine);
        answers.push_back(answer(session, {{7, 300, 12, 12, 255, 1, 64, 33, 290, 8}, {}}));
      }
      EXPECT_EQ(answers[0].logits, answers[1].logits);
      EXPECT_EQ(answers[0].ids, answers[1].ids);
    }
  }
}

TEST_F(Qwen3Images, StandInThePromptWhereItMarksThem) {
  compile(kQwen3Cases[0]);
  if (HasFatalFailure()) return;
  std::ofstream(dir_.path("image.png"), std::ios::binary) << from_base64(kImageSamples[0].base64);
  const Finished run =
      run_program({ktx_run(), "generate", dir_.path("m.ktxplan"), "--json", "-n", "4", "--temp",
                   "0", "--prompt", "the <|vision_start|><|image_pad|><|vision_end|> and",
                   "--image", dir_.path("image.png")});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto ids = nlohmann::json::parse(run.out)["prompt_ids"].get<std::vector<int32_t>>();
  const auto image = std::ranges::find(ids, -2);
  ASSERT_NE(image, ids.end());
  EXPECT_EQ(image[-1], kStart);
  EXPECT_EQ(image[std::ranges::count(ids, -2)], kEnd);
  EXPECT_EQ(std::ranges::count(ids, kPad), 0);
}

TEST_F(Qwen3Images, ProjectorsAreEstimatedAndRefused) {
  write_model(kQwen3Cases[0]);
  if (HasFatalFailure()) return;
  const auto run = [&](const TowerOptions& options, const std::vector<std::string>& what) {
    EXPECT_TRUE(write_tower(dir_.path("mmproj.gguf"), options).ok());
    std::vector<std::string> line = {ktx_compile(), "-q"};
    line.insert(line.end(), what.begin(), what.end());
    line.insert(line.end(), {dir_.path("m.gguf"), "--mmproj", dir_.path("mmproj.gguf")});
    return run_program(line);
  };
  const Finished estimate = run(kQwen3Cases[0].options, {"--estimate"});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_THAT(estimate.out, HasSubstr("an image is at most 40 tokens, made of 160 patches"));
  const Finished check = run(kQwen3Cases[0].options, {"--check"});
  EXPECT_EQ(check.status, 0) << check.err;

  const auto fails = [&](auto&& change) {
    TowerOptions options = kQwen3Cases[0].options;
    change(options);
    const Finished refused = run(options, {"-o", dir_.path("bad.ktxplan")});
    EXPECT_EQ(refused.status, 1) << refused.err;
    return refused.err;
  };
  const auto without = [&](const char* left_out) {
    return fails([&](TowerOptions& o) {
      o.leaves_out = [=](const std::string& name) { return name == left_out; };
    });
  };
  EXPECT_THAT(without("v.patch_embd.weight.1"), HasSubstr("tensor 'v.patch_embd.weight.1'"));
  EXPECT_THAT(without("v.deepstack.2.fc1.weight"), HasSubstr("tensor 'v.deepstack.2.fc1.weight'"));
  EXPECT_THAT(without("v.position_embd.weight"), HasSubstr("tensor 'v.position_embd.weight'"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.most_pixels = 63; }),
              HasSubstr("'clip.vision.image_max_pixels' is 63, expected at least"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.image = 22; }), HasSubstr("does not divide"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.most_pixels = int64_t{1} << 24; }),
              HasSubstr("'clip.vision.image_max_pixels' 16777216 with patches of 4 gives"));
  EXPECT_THAT(fails([](TowerOptions& o) {
                o.layers = 5, o.part_layers = {0, 1, 2, 3};
              }),
              HasSubstr("its rows have 4 parts for layers of the model, which has 3"));
  EXPECT_THAT(fails([](TowerOptions& o) { o.width = 128; }),
              HasSubstr("rows have 128 elements (projection_dim)"));
}

}  // namespace
}  // namespace ktx::testing
