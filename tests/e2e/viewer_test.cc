// What a model sees (lib/vision/viewer.h): sizes by headers, turns of keys, memory for rows.
#include "lib/vision/viewer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/plain_png.h"
#include "tests/support/seeing_model.h"

namespace ktx::vision {
namespace {

using ::testing::HasSubstr;
using testing::plain_png;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class ViewerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new testing::TempDir;
    const std::string plan = testing::compile_seeing(*dir_);
    runtime::EngineOptions options;
    options.threads = 1;
    auto engine = runtime::Engine::open(plan, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine.take().release();
    auto decoder = images::DecoderProcess::start({testing::ktx_run(), images::kDecoderCommand});
    ASSERT_TRUE(decoder.ok()) << decoder.error().message;
    auto viewer = Viewer::open(plan, options, *engine_, decoder.take());
    ASSERT_TRUE(viewer.ok()) << viewer.error().message;
    viewer_ = viewer.take().release();
  }
  static void TearDownTestSuite() {
    delete viewer_;
    delete engine_;
    delete dir_;
  }
  static testing::TempDir* dir_;
  static runtime::Engine* engine_;
  static Viewer* viewer_;
};
testing::TempDir* ViewerTest::dir_ = nullptr;
runtime::Engine* ViewerTest::engine_ = nullptr;
Viewer* ViewerTest::viewer_ = nullptr;

TEST_F(ViewerTest, HeadersSayHowManyTokensThereWillBe) {
  for (const testing::ImageSample& sample : testing::kImageSamples) {
    const std::string file = testing::from_base64(sample.base64);
    const ViewerFigures before = viewer_->figures();
    const auto measured = viewer_->measure(bytes_of(file));
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    EXPECT_FALSE(measured->rows);
    EXPECT_EQ(viewer_->figures().seen, before.seen);
    EXPECT_EQ(viewer_->figures().computed, before.computed);
    const auto seen = viewer_->look(bytes_of(file));
    ASSERT_TRUE(seen.ok()) << seen.error().message;
    EXPECT_EQ(measured->tokens, seen->tokens) << sample.name;
    EXPECT_EQ(measured->columns, seen->columns) << sample.name;
    // One that is known by now.
    EXPECT_EQ(viewer_->measure(bytes_of(file))->tokens, seen->tokens);
  }
  EXPECT_THAT(viewer_->measure(bytes_of(plain_png(8200, 1))).error().message,
              HasSubstr("8200 x 8200 pixels"));
}

TEST_F(ViewerTest, RowsAreCountedAsLongAsSomeoneHasThem) {
  const auto image = viewer_->look(bytes_of(plain_png(30, 7)));
  ASSERT_TRUE(image.ok());
  const int64_t bytes = image->tokens * viewer_->facts().row_width() * int64_t{4};
  std::vector<runtime::ReadImage> held;
  {
    const std::shared_ptr<void> memory = viewer_->hold_rows("a", image->tokens);
    ASSERT_TRUE(memory);
    for (int i = 0; i < 3; ++i) held.push_back(with_hold(*image, memory));
  }
  EXPECT_EQ(viewer_->figures().row_bytes, bytes);
  EXPECT_EQ(*held[0].rows, *image->rows);
  held.resize(1);
  EXPECT_EQ(viewer_->figures().row_bytes, bytes);
  held.clear();
  EXPECT_EQ(viewer_->figures().row_bytes, 0);
  const int64_t gibibyte = (int64_t{1} << 30) / (4 * viewer_->facts().row_width());
  const std::shared_ptr<void> all = viewer_->hold_rows("a", gibibyte);
  EXPECT_TRUE(all);
  EXPECT_FALSE(viewer_->hold_rows("a", gibibyte / 4));
  EXPECT_TRUE(viewer_->hold_rows("b", gibibyte / 4)) << "its part";
}

// Many threads with the same files and others: each is computed once, all get their rows.
TEST_F(ViewerTest, ManyMayLookAtOnce) {
  const int64_t before = viewer_->figures().computed;
  std::atomic<int> rows = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 8; ++i) {
        const std::string key(1, static_cast<char>('a' + t % 4));
        const std::string file = plain_png(100, 1000 + i);
        const auto image = viewer_->look(bytes_of(file), {.owner = "", .share = {.key = key}});
        ASSERT_TRUE(image.ok()) << image.error().message;
        rows += image->rows != nullptr;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rows, 12 * 8);
  EXPECT_EQ(viewer_->figures().computed, before + 8);
}

TEST_F(ViewerTest, OneThatHasLeftTakesNoTurn) {
  const ImageUser stays = {.owner = "", .share = {.key = "a"}};
  const ImageUser left = {.owner = "", .share = stays.share, .waits = [] { return false; }};
  std::vector<std::string> files;
  for (uint32_t i = 0; i < 5; ++i) files.push_back(plain_png(8000, 2000 + i));
  const int64_t before = viewer_->figures().computed;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { EXPECT_TRUE(viewer_->look(bytes_of(files[t]), stays).ok()); });
  }
  // Two of a key have pixels, half a second each; two wait, and the one that left is behind both.
  while (viewer_->figures().waiting < 2 && viewer_->figures().computed < before + 2) {
    std::this_thread::yield();
  }
  const auto none = viewer_->look(bytes_of(files[4]), left);
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("has left"));
  EXPECT_EQ(viewer_->figures().computed, before + 4);
}

}  // namespace
}  // namespace ktx::vision
