// Where passes may end, and which of their tokens are of images.
#include "lib/runtime/engine/images_of_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 2;
const auto kRows =
    std::make_shared<const std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
const auto kRow = std::make_shared<const std::vector<float>>(std::vector<float>{1, 2});
const std::vector<ImageTokens> kImages = {{3, 4, kRows}, {7, 1, kRow}, {20, 4, kRows}};

TEST(ImagesOfPass, APassEndsOutsideOfThem) {
  const auto end = [](int64_t start, int64_t count) {
    return end_outside_images(kImages, start, count);
  };
  EXPECT_EQ(end(0, 3), 3);
  EXPECT_EQ(end(0, 4), 3);
  EXPECT_EQ(end(0, 6), 3);
  EXPECT_EQ(end(0, 7), 7);
  EXPECT_EQ(end(0, 8), 8);
  EXPECT_EQ(end(3, 3), 3);  // the image is longer than the room
  EXPECT_EQ(end(5, 2), 7);  // goes on in an image
  EXPECT_EQ(end(8, 14), 20);
  EXPECT_EQ(end(8, 16), 24);
}

TEST(ImagesOfPass, FindsTheImageOfAToken) {
  auto images = ImagesOfPass::find(kImages, 2, 10, kWidth);
  ASSERT_TRUE(images.ok()) << images.error().message;
  EXPECT_EQ(images->of(2), nullptr);
  EXPECT_EQ(images->of(3), &kImages[0]);
  EXPECT_EQ(images->of(6), &kImages[0]);
  EXPECT_EQ(images->of(7), &kImages[1]);
  EXPECT_EQ(images->of(8), nullptr);
  EXPECT_EQ(images->of(11), nullptr);
}

// A text goes on behind the longer side of an image's grid, wherever a pass begins.
TEST(ImagesOfPass, TokensHaveATimeALineAndAColumn) {
  using Axes = std::array<int32_t, kTokenAxes>;
  const std::vector<ImageTokens> grids = {{3, 4, kRows, 0, true, 2}, {10, 3, kRows, 0, true, 3}};
  const Axes wanted[] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2},  {3, 3, 3},   {3, 3, 4},
                         {3, 4, 3}, {3, 4, 4}, {5, 5, 5},  {6, 6, 6},   {7, 7, 7},
                         {8, 8, 8}, {8, 8, 9}, {8, 8, 10}, {11, 11, 11}};
  for (int64_t start = 0; start < std::ssize(wanted); ++start) {
    auto images = ImagesOfPass::find(grids, start, 20, kWidth);
    ASSERT_TRUE(images.ok()) << images.error().message;
    for (int64_t token = start; token < std::ssize(wanted); ++token) {
      (void)images->of(token);
      EXPECT_EQ(images->axes(token), wanted[token]) << token << " from " << start;
    }
  }
  EXPECT_FALSE(
      ImagesOfPass::find(std::vector<ImageTokens>{{3, 4, kRows, 0, true, 3}}, 0, 9, kWidth).ok());
}

TEST(ImagesOfPass, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ImagesOfPass::find(kImages, 0, 5, kWidth).error().message,
              HasSubstr("a step that ends at token 5, within the image from 3 to 7"));
  EXPECT_FALSE(ImagesOfPass::find(kImages, 0, 30, 3).ok());
  const std::vector<ImageTokens> overlapping = {{3, 4, kRows}, {6, 4, kRows}};
  EXPECT_FALSE(ImagesOfPass::find(overlapping, 0, 30, kWidth).ok());
}

// Lines of an image: each has rows of its own in those of the image, and a pass may end in it.
TEST(ImagesOfPass, CausalOnesMayBeCutAndSeeNothingAhead) {
  const std::vector<ImageTokens> lines = {{3, 2, kRows, 0, true}, {6, 2, kRows, 2, true}};
  EXPECT_EQ(end_outside_images(lines, 0, 4), 4);
  EXPECT_EQ(end_outside_images(lines, 4, 3), 7);
  auto images = ImagesOfPass::find(lines, 0, 4, kWidth);
  ASSERT_TRUE(images.ok()) << images.error().message;
  const std::vector<ImageTokens> beyond = {{3, 2, kRows, 3, true}};
  EXPECT_FALSE(ImagesOfPass::find(beyond, 0, 4, kWidth).ok());
  Batch batch;
  batch.given_row.resize(8), batch.text_end.resize(8), batch.hidden.resize(16);
  put_image_row(&lines[1], 7, 1, kWidth, batch);
  EXPECT_FALSE(batch.sees_ahead);
  EXPECT_EQ(batch.text_end[1], 7);
  EXPECT_EQ(batch.hidden[2], 7);
  EXPECT_EQ(batch.hidden[3], 8);
}

TEST(ImagesOfPass, PutsRowsWhereTheirTokensAre) {
  Batch batch;
  batch.given_row.resize(8), batch.text_end.resize(8), batch.hidden.resize(16);
  put_image_row(nullptr, 2, 0, kWidth, batch);
  EXPECT_FALSE(batch.sees_ahead);
  put_image_row(&kImages[0], 4, 2, kWidth, batch);
  EXPECT_TRUE(batch.sees_ahead);
  EXPECT_EQ(batch.given_row[0], -1);
  EXPECT_EQ(batch.text_end[0], 2);
  EXPECT_EQ(batch.given_row[2], 2);
  EXPECT_EQ(batch.text_end[2], 6);
  EXPECT_EQ(batch.hidden[4], 3);
  EXPECT_EQ(batch.hidden[5], 4);
}

}  // namespace
}  // namespace ktx::runtime
