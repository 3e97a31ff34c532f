#include "lib/formats/requantized_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace ktx {
namespace {

std::vector<float> normals(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& v : x) v = normal(random) * 0.02f;
  return x;
}

std::vector<float> rounded(const RequantizedForm& form, const std::vector<float>& x) {
  std::vector<std::byte> blocks(
      static_cast<size_t>(*row_bytes(form.dtype, static_cast<int64_t>(x.size()))));
  requantize_row(form, x.data(), static_cast<int64_t>(x.size()), blocks.data());
  std::vector<float> y(x.size());
  dequantize_row(form.dtype, blocks.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}

TEST(Requantize, EveryWeightIsWithinHalfAStepOfItsGroup) {
  for (const RequantizedForm& form : requantized_forms()) {
    const std::vector<float> x = normals(1024, 5);
    const std::vector<float> y = rounded(form, x);
    for (size_t group = 0; group < x.size(); group += static_cast<size_t>(form.group)) {
      float largest = 0;
      for (int64_t i = 0; i < form.group; ++i) largest = std::max(largest, std::abs(x[group + i]));
      // Steps: 127 to the largest; 8 on one side and 7 on the other; 7.5.
      const float step = form.dtype == DType::Q8_0 ? largest / 127
                         : form.group == 32        ? largest / 8
                                                   : largest / 7.5f;
      // One side of 4 bits ends a step, or half of one, before the largest.
      const float slack = form.dtype == DType::Q8_0 ? 0.5f : form.group == 32 ? 1.0f : 0.5f;
      for (int64_t i = 0; i < form.group; ++i) {
        ASSERT_LE(std::abs(x[group + i] - y[group + i]), step * slack * 1.01f)
            << form.name << ", element " << group + i;
      }
    }
  }
}

TEST(Requantize, GroupsShareOneScale) {
  const RequantizedForm* form = find_requantized_form("int4_g128");
  ASSERT_NE(form, nullptr);
  std::vector<float> x(256, 0.001f);
  x[100] = 1;  // the first group's step is 2/15; its other elements vanish
  const std::vector<float> y = rounded(*form, x);
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[100], 7 * 2 / 15.0, 1e-3);
  EXPECT_NEAR(y[200], 0.001, 1e-4);  // another group
}

TEST(Requantize, RoundingAgainChangesNothing) {
  for (const RequantizedForm& form : requantized_forms()) {
    if (form.group > 32) continue;  // their largest is not the largest of the result
    const std::vector<float> once = rounded(form, normals(512, 6));
    EXPECT_EQ(rounded(form, once), once) << form.name;
  }
}

TEST(Requantize, ZerosAndHugeWeightsStayFinite) {
  for (const RequantizedForm& form : requantized_forms()) {
    EXPECT_EQ(rounded(form, std::vector<float>(128, 0.0f)), std::vector<float>(128, 0.0f));
    for (float y : rounded(form, std::vector<float>(128, 3e38f))) EXPECT_TRUE(std::isfinite(y));
  }
  EXPECT_EQ(find_requantized_form("Q4_K"), nullptr);
}

// Weights come from files of anybody.
TEST(Requantize, WeightsThatAreNoNumbersBecomeZeroAndInfinityTheLargest) {
  for (const RequantizedForm& form : requantized_forms()) {
    std::vector<float> x(256, 0.5f);
    x[3] = NAN;
    x[200] = -INFINITY;
    const std::vector<float> y = rounded(form, x);
    EXPECT_EQ(y[3], 0) << form.name;
    EXPECT_NEAR(y[4], 0.5, 0.05) << form.name;
    EXPECT_LT(y[200], -60000) << form.name;
    for (float v : y) EXPECT_TRUE(std::isfinite(v)) << form.name;
  }
}

}  // namespace
}  // namespace ktx
