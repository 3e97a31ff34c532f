// Rows scaled to the size of others, and cut by their distribution: against double.
#include "kernels/norm/row_statistics.h"

#include <algorithm>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

class RowStatistics : public ::testing::TestWithParam<Isa> {};

double mean_square(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += double{value} * value;
  return sum / static_cast<double>(x.size());
}

TEST_P(RowStatistics, MatchesTheSizeOfAnotherRow) {
  Random random(101);
  for (const int64_t width : {1, 15, 16, 33, 200}) {
    constexpr int64_t kTokens = 3, kLike = 21;
    std::vector<float> x = random.normals(kTokens * width, 3);
    std::fill_n(x.begin(), width, 0.0f);  // a row without size stays so
    const std::vector<float> like = random.normals(kTokens * kLike, 5);
    std::vector<float> y(x.size() + 1, -7);
    MatchRmsArgs a;
    a.x = x.data(), a.x_stride = width;
    a.like = like.data(), a.like_stride = a.like_width = kLike;
    a.y = y.data(), a.y_stride = a.width = width;
    a.attrs.eps = 1e-5f;
    a.token_end = kTokens;
    const MatchRmsFn run = *find_match_rms("match_rms", GetParam());
    run(a);
    EXPECT_EQ(y.back(), -7);
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto row =
          std::span(x).subspan(static_cast<size_t>(t * width), static_cast<size_t>(width));
      const auto other = std::span(like).subspan(static_cast<size_t>(t * kLike), kLike);
      const double factor = std::sqrt(mean_square(other) / std::max(mean_square(row), 1e-5));
      for (int64_t i = 0; i < width; ++i) {
        const double expected = row[static_cast<size_t>(i)] * factor;
        ASSERT_NEAR(y[static_cast<size_t>(t * width + i)], expected,
                    1e-5 * (1 + std::abs(expected)));
      }
    }
    a.y = x.data();
    run(a);
    y.pop_back();
    EXPECT_TRUE(same_bits(x, y)) << "in place";
  }
}

TEST_P(RowStatistics, KeepsWhatIsAboveSomeDeviations) {
  Random random(102);
  for (const int64_t width : {1, 15, 16, 33, 4000}) {
    constexpr int64_t kTokens = 2;
    for (const float deviations : {1.6448536f, 0.0f, -0.5f}) {
      std::vector<float> x = random.normals(kTokens * width, 2);
      for (float& value : x) value += 1;
      std::vector<float> y(x.size() + 1, -7);
      GaussianTopKArgs a;
      a.x = x.data(), a.x_stride = width;
      a.y = y.data(), a.y_stride = a.width = width;
      a.attrs.deviations = deviations;
      a.token_end = kTokens;
      const GaussianTopKFn run = *find_gaussian_topk("gaussian_topk", GetParam());
      run(a);
      EXPECT_EQ(y.back(), -7);
      for (int64_t t = 0; t < kTokens; ++t) {
        const float* row = &x[static_cast<size_t>(t * width)];
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < width; ++i) mean += row[i] / static_cast<double>(width);
        for (int64_t i = 0; i < width; ++i) squares += (row[i] - mean) * (row[i] - mean);
        const double cut = mean + deviations * std::sqrt(squares / static_cast<double>(width));
        int64_t kept = 0;
        for (int64_t i = 0; i < width; ++i) {
          const float found = y[static_cast<size_t>(t * width + i)];
          ASSERT_NEAR(found, std::max(row[i] - cut, 0.0), 1e-5) << width;
          kept += found > 0;
        }
        if (width == 4000 && deviations > 1) {
          EXPECT_NEAR(static_cast<double>(kept), 200, 50) << "some 5 %";
        }
      }
      a.y = x.data();
      run(a);
      y.pop_back();
      EXPECT_TRUE(same_bits(x, y)) << "in place";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RowStatistics, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ktx::kernels
