// Rows of tables of n-grams against the formula of EmbedNgramsAttrs, in numbers of published files.
#include "kernels/embed/ngram_rows.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ktx::kernels {
namespace {

constexpr EmbedNgramsAttrs kAttrs{0, 3, 2, 7};
constexpr uint64_t kMultipliers[] = {23703573157769, 20109073645365, 8052911324071};
constexpr uint64_t kSizes[] = {20000003, 20000023, 20000153, 20000171};
constexpr uint64_t kOffsets[] = {0, 20000003, 280001122, 300001275};

std::vector<float> digits() {
  std::vector<float> out;
  for (const std::span<const uint64_t> numbers :
       {std::span<const uint64_t>(kMultipliers), std::span<const uint64_t>(kSizes),
        std::span<const uint64_t>(kOffsets)}) {
    for (const uint64_t number : numbers) append_ngram_digits(number, out);
  }
  return out;
}

TEST(NgramRows, AreThoseOfTheFormula) {
  const std::vector<float> numbers = digits();
  ASSERT_EQ(std::ssize(numbers), kNgramDigits * (3 + 4 + 4));
  const NgramHash hash(kAttrs, numbers.data());
  EXPECT_TRUE(hash.fits(320001446));
  EXPECT_FALSE(hash.fits(320001445));
  for (const int32_t id : {0, 1, 248319}) {
    const int32_t last[] = {id, 248044, 17};
    int32_t rows[4];
    hash.rows(last, rows);
    const uint64_t two = kMultipliers[0] * id ^ kMultipliers[1] * 248044;
    const uint64_t three = two ^ kMultipliers[2] * 17;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(rows[i], int64_t(kOffsets[i] + (i < 2 ? two : three) % kSizes[i]))
          << id << " " << i;
    }
  }
}

TEST(NgramRows, OfADamagedHashDoNotFitAnyTable) {
  std::vector<float> numbers = digits();
  for (int32_t i = 0; i < kNgramDigits; ++i) numbers[kNgramDigits * 3 + i] = 0;  // a size of 0
  EXPECT_FALSE(NgramHash(kAttrs, numbers.data()).fits(INT32_MAX));
  const std::vector<float> none(numbers.size(), NAN);
  EXPECT_FALSE(NgramHash(kAttrs, none.data()).fits(INT32_MAX));
  const std::vector<float> huge(numbers.size(), 65535);
  EXPECT_FALSE(NgramHash(kAttrs, huge.data()).fits(INT32_MAX));
}

}  // namespace
}  // namespace ktx::kernels
