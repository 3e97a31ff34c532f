// Models that see, on a real GPU: the tower's rows, and what the language model makes of them,
// beside exact precision on the CPU. Skipped where no GPU can be opened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "lib/plan/device_memory.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/images/image_tokens.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/seeing_qwen3.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::Engine;
using runtime::EngineOptions;
using runtime::ImageReader;
using runtime::ImageTokens;

class GpuImages : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = runtime::open_gpu(0);
    if (!gpu) GTEST_SKIP() << gpu.error().message;
    // Packed (tools/dev/check-gpu --pack), the compiler, rules, targets and models stand beside the
    // program.
    const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    packed_ = std::filesystem::exists(beside / "ktx-compile");
    root_ = packed_ ? beside.string() : source_dir();
    compiler_ = packed_ ? root_ + "/ktx-compile" : ktx_compile();
  }

  void compile(const std::string& rules) {
    const Finished run = run_program(
        {compiler_, "-q", model_, "-o", plan_, root_ + "/rules/" + rules, "--mmproj",
         dir_.path("mmproj.gguf"), "--mmproj-rules",
         root_ + "/rules/" + (rules == "cpu-only.yaml" ? "cpu-only.yaml" : "all-gpu.yaml"), "--ctx",
         "1024", "--target=" + root_ + "/targets/h200.yaml"});
    ASSERT_EQ(run.status, 0) << run.err;
  }

  struct Seen {
    std::vector<float> rows;                 // of the images
    std::vector<std::vector<float>> logits;  // of every token
  };
  // Two images with text around them, in passes of `chunk` tokens.
  Seen see(const EngineOptions& options, int64_t lines, int64_t columns, size_t chunk) {
    Seen seen;
    auto reader = ImageReader::open(plan_, options);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    if (!reader) return seen;
    std::vector<int32_t> ids = {2, 7, 12};
    std::vector<ImageTokens> images;
    for (const uint32_t seed : {1, 2}) {
      const auto image = (*reader)->read(random_patches((*reader)->facts(), lines, columns, seed));
      EXPECT_TRUE(image.ok()) << image.error().message;
      if (!image) return seen;
      seen.rows.insert(seen.rows.end(), image->rows->begin(), image->rows->end());
      runtime::add_image(*image, (*reader)->facts(), {}, ids, images);
      ids.insert(ids.end(), {64, 33, 290});
    }
    EngineOptions all = options;
    all.all_logits = true;
    auto engine = Engine::open(plan_, all);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    if (!engine) return seen;
    runtime::Sequence sequence = (*engine)->new_sequence();
    for (size_t at = 0; at < ids.size(); at += chunk) {
      const auto part = std::span(ids).subspan(at, std::min(chunk, ids.size() - at));
      BatchItem item{&sequence, part, runtime::Want::All};
      item.images = images;
      const auto done = (*engine)->forward({&item, 1});
      EXPECT_TRUE(done.ok()) << done.error().message;
      if (!done) return seen;
      for (int64_t row = 0; row < (*engine)->logits_rows(); ++row) {
        seen.logits.emplace_back((*engine)->logits(row).begin(), (*engine)->logits(row).end());
      }
    }
    return seen;
  }

  // The root of the mean squared difference over that of what is wanted.
  static double distance(std::span<const float> found, std::span<const float> wanted) {
    EXPECT_EQ(found.size(), wanted.size());
    double difference = 0, all = 0;
    for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
      difference += std::pow(found[i] - wanted[i], 2);
      all += std::pow(wanted[i], 2);
    }
    return std::sqrt(difference / all);
  }

  void compare(const char* name, int64_t lines, int64_t columns, bool causal) {
    SCOPED_TRACE(name);
    EngineOptions exact;
    exact.precision = runtime::Precision::Exact;
    exact.threads = 4;
    compile("cpu-only.yaml");
    if (HasFatalFailure()) return;
    const Seen wanted = see(exact, lines, columns, 4096);
    for (const char* rules : {"all-gpu.yaml", "moe-experts-on-cpu.yaml"}) {
      compile(rules);
      if (HasFatalFailure()) return;
      for (const size_t chunk : {size_t{4096}, size_t{50}, size_t{1}}) {
        if (!causal && chunk != 4096) continue;  // an image is one pass
        const Seen found = see({}, lines, columns, chunk);
        ASSERT_EQ(found.logits.size(), wanted.logits.size());
        const double rows = distance(found.rows, wanted.rows);
        std::vector<double> logits;
        for (size_t t = 0; t < wanted.logits.size(); ++t) {
          logits.push_back(distance(found.logits[t], wanted.logits[t]));
        }
        std::sort(logits.begin(), logits.end());
        std::cout << name << ", " << rules << ", chunks of " << chunk << ": rows " << rows
                  << ", logits: median " << logits[logits.size() / 2] << ", worst " << logits.back()
                  << "\n";
        EXPECT_LT(rows, 0.02);
        EXPECT_LT(logits[logits.size() / 2], 0.02);
        EXPECT_LT(logits[logits.size() * 9 / 10], 0.05);
      }
    }
  }

  const TempDir dir_;
  bool packed_ = false;
  std::string root_, compiler_, model_ = dir_.path("m.gguf");
  const std::string plan_ = dir_.path("m.ktxplan");
};

TEST_F(GpuImages, OfQwen3GiveTheRowsAndLogitsOfExactPrecision) {
  struct Grid {
    Qwen3Case model;
    int64_t lines, columns;
  };
  for (const Grid& grid : {Grid{kQwen3Cases[0], 8, 6}, Grid{kQwen3Cases[1], 6, 9},
                           Grid{kQwen3Cases[2], 4, 10}, Grid{kWideQwen3, 24, 32}}) {
    ASSERT_TRUE(write_qwen3(dir_, grid.model, "f16"));
    compare(grid.model.name, grid.lines, grid.columns, true);
  }
}

// Tokens of an image see each other in both directions.
TEST_F(GpuImages, OfGemma3GiveTheRowsAndLogitsOfExactPrecision) {
  model_ = packed_ ? root_ + "/tests/models/gemma3/gemma3-q4_k_m.gguf" : test_model_gguf("gemma3");
  ASSERT_TRUE(write_tower(dir_.path("mmproj.gguf")));
  compare("gemma3", 6, 6, false);
}

}  // namespace
}  // namespace ktx::testing
