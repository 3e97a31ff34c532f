// Images against Pillow's pixels (the first digits of their SHA-256), limits, and damaged files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lib/images/decode.h"
#include "lib/images/patches.h"
#include "lib/images/resize.h"
#include "lib/support/sha256.h"
#include "tests/support/image_samples.h"
#include "tests/support/plain_png.h"

namespace ktx::images {
namespace {

using testing::from_base64;
using ::testing::HasSubstr;
using testing::kImageSamples;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string digest(const Image& image) {
  return to_hex(*sha256(std::as_bytes(std::span(image.rgb)))).substr(0, 16);
}

TEST(Images, AreDecodedToPillowsPixels) {
  for (const testing::ImageSample& sample : kImageSamples) {
    SCOPED_TRACE(sample.name);
    const std::string file = from_base64(sample.base64);
    const Result<Image> image = decode_image(bytes_of(file));
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_EQ(image->width, sample.width);
    EXPECT_EQ(image->height, sample.height);
    EXPECT_EQ(digest(*image), sample.digest);
  }
}

// Turned or not, and without the rest of the file.
TEST(Images, HeadersHaveTheirSizes) {
  for (const testing::ImageSample& sample : kImageSamples) {
    const std::string file = from_base64(sample.base64);
    const Result<Image> image = decode_image(bytes_of(file), {}, ImagePart::Header);
    ASSERT_TRUE(image.ok()) << sample.name << ": " << image.error().message;
    EXPECT_EQ(image->width, sample.width) << sample.name;
    EXPECT_EQ(image->height, sample.height) << sample.name;
    EXPECT_TRUE(image->rgb.empty());
  }
  const std::string large = testing::plain_png(8000, 0x123456);
  const Result<Image> image = decode_image(bytes_of(large.substr(0, 40)), {}, ImagePart::Header);
  EXPECT_FALSE(image.ok()) << "colours are missing, which stand before the pixels";
  const std::string cut = large.substr(0, large.size() / 2);
  EXPECT_EQ(decode_image(bytes_of(cut), {}, ImagePart::Header)->width, 8000);
  EXPECT_FALSE(decode_image(bytes_of(cut)).ok());
  EXPECT_THAT(
      decode_image(bytes_of(testing::plain_png(8200, 1)), {}, ImagePart::Header).error().message,
      HasSubstr("8200 x 8200 pixels"));
}

// The colour of the file's palette in each pixel: what makes plain images of tests is right.
TEST(Images, OfOneColorAreSuch) {
  for (const uint32_t side : {1u, 7u, 300u}) {
    const Result<Image> image = decode_image(bytes_of(testing::plain_png(side, 0x0a0b0c)));
    ASSERT_TRUE(image.ok()) << image.error().message;
    ASSERT_EQ(image->rgb.size(), size_t{3} * side * side);
    for (size_t i = 0; i < image->rgb.size(); ++i) ASSERT_EQ(image->rgb[i], 0x0a + i % 3);
  }
}

// A million empty segments, of which libjpeg's own list would take time by the square.
TEST(Images, OfAMillionSegmentsAreReadInOneGo) {
  for (const testing::ImageSample& sample : kImageSamples) {
    std::string file = from_base64(sample.base64);
    if (!file.starts_with("\xff\xd8")) continue;
    std::string segments;
    for (int i = 0; i < 1'000'000; ++i) segments += std::string("\xff\xe1\x00\x02", 4);
    file.insert(2, segments);
    const Result<Image> image = decode_image(bytes_of(file));
    ASSERT_TRUE(image.ok()) << sample.name << ": " << image.error().message;
    EXPECT_EQ(digest(*image), sample.digest) << sample.name;
  }
}

TEST(Images, AreResizedToPillowsPixels) {
  const struct {
    int64_t from_width, from_height, width, height;
    const char *bilinear, *bicubic;
  } cases[] = {
      {7, 5, 36, 36, "6f544f2abf18ca98", "bd15c80284579842"},
      {200, 131, 36, 36, "025aaab38cabb444", "22c1240eb2d03041"},
      {1, 1, 36, 36, "c1b191b9b095f4c3", "c1b191b9b095f4c3"},
      {36, 36, 36, 36, "ac0ffeca2de4f8e1", "ac0ffeca2de4f8e1"},
      {36, 500, 36, 30, "767784423024b809", "c360ef9b70ac23ed"},
      {1000, 3, 30, 30, "8b6b78e994e0dcf7", "e9ac86a4ceead7a7"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} x {}", c.from_width, c.from_height));
    const Image image = testing::image_pattern(c.from_width, c.from_height);
    EXPECT_EQ(digest(resized(image, c.width, c.height, filter_of("bilinear"))), c.bilinear);
    EXPECT_EQ(digest(resized(image, c.width, c.height, filter_of("bicubic"))), c.bicubic);
  }
}

// As transformers' processor of Qwen's models has it, which fails for the last one.
TEST(Images, ThatAreMeasuredByTheirPixelsBecomeMultiplesOfASquare) {
  plan::ImageFacts facts;
  facts.size = 768, facts.patch = 16, facts.pool = 2, facts.keeps_shape = true;
  facts.least_pixels = 65536, facts.most_pixels = 4194304;
  EXPECT_EQ(facts.tokens(), 4096);
  const ImageSize cases[][2] = {
      {{640, 480}, {640, 480}},     {{1, 1}, {256, 256}},         {{16, 48}, {160, 448}},
      {{4000, 3000}, {2336, 1760}}, {{3000, 4001}, {1760, 2336}}, {{2048, 2048}, {2048, 2048}},
      {{2049, 2047}, {2048, 2048}}, {{6400, 32}, {6400, 32}},     {{1920, 1079}, {1920, 1088}},
      {{48, 80}, {224, 352}},       {{100, 199}, {192, 384}},     {{32768, 2048}, {8192, 512}},
      {{32768, 1}, {46368, 32}},
  };
  for (const auto& [image, wanted] : cases) {
    const ImageSize size = size_for(image, facts);
    EXPECT_EQ(size.width, wanted.width) << image.width << " x " << image.height;
    EXPECT_EQ(size.height, wanted.height) << image.width << " x " << image.height;
    EXPECT_LE(size.width * size.height, facts.most_pixels);
  }
  facts.most_pixels = 4096;  // four squares
  facts.least_pixels = 1024;
  EXPECT_EQ(size_for({5000, 10}, facts).width, 128);
}

// As transformers' processor of Pixtral has it, which fails for the last one.
TEST(Images, ThatKeepTheirShapeBecomeMultiplesOfASquare) {
  plan::ImageFacts facts;
  facts.size = 1540, facts.patch = 14, facts.pool = 2, facts.keeps_shape = true;
  EXPECT_EQ(facts.columns(), 110);
  EXPECT_EQ(facts.tokens(), 55 * 55);
  const ImageSize cases[][2] = {
      {{1540, 1540}, {1540, 1540}}, {{1541, 3}, {1540, 28}},     {{4000, 3000}, {1540, 1176}},
      {{3000, 4001}, {1176, 1540}}, {{1, 1}, {28, 28}},          {{28, 29}, {28, 56}},
      {{640, 480}, {644, 504}},     {{1079, 1920}, {868, 1540}}, {{32768, 20}, {1540, 28}},
  };
  for (const auto& [image, wanted] : cases) {
    const ImageSize size = size_for(image, facts);
    EXPECT_EQ(size.width, wanted.width) << image.width << " x " << image.height;
    EXPECT_EQ(size.height, wanted.height) << image.width << " x " << image.height;
  }
  facts.mean = {0, 0, 0}, facts.deviation = {1, 1, 1};
  facts.size = 12, facts.patch = 2, facts.resize = "bicubic";
  const plan::ImagePatches patches = patches_of(testing::image_pattern(9, 3), facts);
  EXPECT_EQ(patches.columns, 6);
  EXPECT_EQ(std::ssize(patches.floats), 2 * 6 * facts.patch_floats());
}

TEST(Images, PatchesHoldAChannelAfterTheOther) {
  plan::ImageFacts facts;
  facts.size = 4, facts.patch = 2, facts.pool = 1;
  facts.mean = {0.5f, 0.25f, 0}, facts.deviation = {0.5f, 0.25f, 1};
  const Image image = testing::image_pattern(4, 4);
  const plan::ImagePatches patches = patches_of(image, facts);
  ASSERT_EQ(patches.floats.size(), 48u);
  EXPECT_EQ(patches.columns, 2);
  // The second patch of the second line: its green at its last line's first column.
  const double green = image.rgb[3 * (3 * 4 + 2) + 1] / 255.0;
  EXPECT_FLOAT_EQ(patches.floats[3 * 12 + 4 + 2], static_cast<float>((green - 0.25) / 0.25));
}

TEST(Images, AboveALimitAreNotDecoded) {
  const std::string file = from_base64(kImageSamples[0].base64);
  EXPECT_THAT(decode_image(bytes_of(file), {.bytes = 10}).error().message,
              HasSubstr("expected at most 10 B"));
  EXPECT_THAT(decode_image(bytes_of(file), {.pixels = 34}).error().message,
              HasSubstr("the image has 7 x 5 pixels, expected at most 34 in all"));
  EXPECT_THAT(decode_image(bytes_of(file), {.side = 6}).error().message, HasSubstr("6 a side"));
  // A header alone that promises 2^31 - 1 pixels a side.
  std::string huge = file;
  std::memcpy(huge.data() + 16, "\x7f\xff\xff\xff\x7f\xff\xff\xff", 8);
  EXPECT_FALSE(decode_image(bytes_of(huge)).ok());
  EXPECT_THAT(decode_image(bytes_of("GIF89a")).error().message, HasSubstr("convert it to PNG"));
  EXPECT_THAT(decode_image(bytes_of("hello")).error().message, HasSubstr("no image"));
  EXPECT_FALSE(decode_image({}).ok());
}

// An error, or an image within its limits; under the sanitizers, nothing else.
TEST(Images, DamagedFilesAreRefusedOrDecoded) {
  const ImageLimits limits{.bytes = 1 << 16, .pixels = 1 << 16, .side = 4096};
  std::mt19937 random(7);
  int refused = 0, rounds = 0;
  for (const testing::ImageSample& sample : kImageSamples) {
    const std::string file = from_base64(sample.base64);
    for (int i = 0; i < 1000; ++i, ++rounds) {
      std::string damaged = file;
      if (i % 4 == 0) damaged.resize(random() % file.size());
      for (size_t n = random() % 4 + 1; n > 0 && !damaged.empty(); --n) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      const Result<Image> image = decode_image(bytes_of(damaged), limits);
      refused += !image.ok();
      if (!image.ok()) continue;
      ASSERT_LE(image->width * image->height, limits.pixels);
      ASSERT_EQ(std::ssize(image->rgb), 3 * image->width * image->height);
    }
    EXPECT_FALSE(decode_image(bytes_of(file.substr(0, file.size() / 2))).ok()) << sample.name;
  }
  EXPECT_GT(refused, rounds / 4);
}

}  // namespace
}  // namespace ktx::images
