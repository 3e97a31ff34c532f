#include "lib/runtime/quality/logits_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "lib/runtime/quality/divergence.h"
#include "lib/runtime/sampling/random.h"
#include "tests/support/temp_dir.h"

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;

constexpr LogitsHead kHead = {8, 7, 2};  // an odd vocabulary: rows are padded

std::vector<float> row_of(int64_t context, int64_t place) {
  Random random(static_cast<uint64_t>(context * 10 + place + 1));
  std::vector<float> row;
  for (int64_t i = 0; i < kHead.vocabulary; ++i) {
    row.push_back(static_cast<float>(random.uniform() * 30 - 10));
  }
  return row;
}

std::string written(const testing::TempDir& dir) {
  const std::string path = dir.path("base.logits");
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kHead.context * kHead.contexts; ++i) tokens.push_back(i % 7);
  auto writer = LogitsWriter::open(path, kHead, tokens);
  EXPECT_TRUE(writer);
  for (int64_t c = 0; c < kHead.contexts; ++c) {
    for (int64_t p = 0; p < scored_places(kHead.context); ++p) {
      EXPECT_TRUE(writer->write(c, p, row_of(c, p)));
    }
  }
  EXPECT_TRUE(writer->finish());
  return path;
}

TEST(LogitsFile, HasWhatWasWrittenToTheRoundingOfItsCodes) {
  const testing::TempDir dir;
  const auto file = LogitsFile::open(written(dir));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->head().context, kHead.context);
  EXPECT_EQ(file->head().contexts, kHead.contexts);
  EXPECT_EQ(file->tokens()[9], 9 % 7);
  for (int64_t c = 0; c < kHead.contexts; ++c) {
    for (int64_t p = 0; p < scored_places(kHead.context); ++p) {
      const std::vector<float> logits = row_of(c, p);
      std::vector<float> expected(7), found(7);
      ASSERT_TRUE(all_logprobs(logits, expected));
      ASSERT_TRUE(file->read(c, p, found));
      const float least = *std::ranges::max_element(expected) - 16;
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], std::max(expected[i], least), 16.0 / 65535);
      }
    }
  }
}

TEST(LogitsFile, KeepsEqualLogits) {
  const testing::TempDir dir;
  auto writer = LogitsWriter::open(dir.path("base"), {4, 3, 1}, {{0, 1, 2, 0}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->write(0, 0, {{5, 5, 5}}));
  EXPECT_FALSE(writer->write(0, 0, {{5, std::nanf(""), 5}}));
  ASSERT_TRUE(writer->finish());
  std::vector<float> found(3);
  ASSERT_TRUE(LogitsFile::open(dir.path("base"))->read(0, 0, found));
  for (const float logprob : found) EXPECT_NEAR(logprob, -std::log(3.0f), 1e-6);
}

TEST(LogitsFile, RefusesEveryTruncationAndMore) {
  const testing::TempDir dir;
  const std::string bytes = testing::read_file(written(dir));
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_FALSE(LogitsFile::open(dir.write("cut", bytes.substr(0, size)))) << size;
  }
  EXPECT_FALSE(LogitsFile::open(dir.write("more", bytes + "x")));
}

TEST(LogitsFile, RefusesHeadsThatCannotBe) {
  const testing::TempDir dir;
  const std::string bytes = testing::read_file(written(dir));
  const auto with = [&](size_t at, int32_t number) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &number, 4);
    const auto file = LogitsFile::open(dir.write("changed", changed));
    return file ? std::string() : file.error().message;
  };
  for (const int32_t number : {0, -1, 3, 1 << 30, INT32_MAX, INT32_MIN}) {
    EXPECT_NE(with(8, number), "") << number;
    EXPECT_NE(with(12, number), "") << number;
    EXPECT_NE(with(16, number), "") << number;
  }
  EXPECT_THAT(with(16, 3), HasSubstr("may have been stopped"));
  EXPECT_THAT(with(20, 7), HasSubstr("token 7 is not in the vocabulary of 7"));
  EXPECT_THAT(with(20, -1), HasSubstr("token -1"));
  EXPECT_THAT(with(0, 0), HasSubstr("not a file of log-probabilities"));
}

TEST(LogitsFile, RefusesScalesAndLeastsThatNoLogitsGive) {
  const testing::TempDir dir;
  std::string bytes = testing::read_file(written(dir));
  const size_t first_row = 20 + 4 * 16;
  float form[2];
  std::memcpy(form, bytes.data() + first_row, 8);
  const auto [scale, least] = form;
  const std::pair<float, float> bad[] = {
      {std::nanf(""), least}, {-1.0f, least},  {1e38f, least}, {1e30f, least},
      {scale * 1.1f, least},  {scale, 1.0f},   {0, -1e30f},    {scale, -40},
      {scale, std::nanf("")}, {scale, -1e30f}, {0, 0.1f}};
  for (const auto& pair : bad) {
    std::memcpy(bytes.data() + first_row, &pair.first, 4);
    std::memcpy(bytes.data() + first_row + 4, &pair.second, 4);
    const auto file = LogitsFile::open(dir.write("changed", bytes));
    ASSERT_TRUE(file);
    std::vector<float> out(7);
    const Status read = file->read(0, 0, out);
    ASSERT_FALSE(read) << pair.first << " " << pair.second;
    EXPECT_THAT(read.error().message, HasSubstr("place 0 of context 0"));
    EXPECT_TRUE(file->read(0, 1, out));
  }
}

}  // namespace
}  // namespace ktx::runtime
