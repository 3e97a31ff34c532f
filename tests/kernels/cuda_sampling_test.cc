// The best logits found by the GPU against a sort.
#include "kernels/cuda/rows/cuda_sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaSampling = CudaTest;

struct Found {
  std::vector<CudaTokenLogit> best;
  std::vector<double> log_sum;
};

Found best_logits(const std::vector<float>& logits, int64_t rows, int32_t count,
                  const std::vector<uint32_t>& allowed = {}) {
  Gpu<float> gpu(logits);
  Gpu<CudaTokenLogit> best(static_cast<size_t>(rows * count));
  Gpu<double> log_sum(static_cast<size_t>(rows));
  CudaBestLogitsArgs args;
  args.logits = gpu.data();
  args.rows = rows;
  args.vocabulary = args.logits_stride = static_cast<int64_t>(logits.size()) / rows;
  args.count = count;
  args.best = best.data();
  args.log_sum = log_sum.data();
  Gpu<uint32_t> bits(allowed);
  if (!allowed.empty()) {
    args.allowed = bits.data();
    args.allowed_words = static_cast<int64_t>(allowed.size()) / rows;
  }
  Gpu<std::byte> workspace(static_cast<size_t>(cuda_best_logits_workspace(args)));
  args.workspace = workspace.data();
  EXPECT_TRUE(ran(launch_best_logits(args, nullptr)));
  return {best.read(), log_sum.read()};
}

TEST_F(CudaSampling, TheBestComeInOrderOfLogitAndOfEqualOnesOfId) {
  Random random(85);
  for (const int64_t vocabulary : {1, 7, 1024, 1025, 5000, 151936}) {
    for (const int32_t count : {1, 2, 40, 64, 65, 128}) {
      const int64_t rows = 3;
      std::vector<float> logits = random.normals(rows * vocabulary);
      // Many equal ones in the last row, -0 beside 0 among them.
      for (int64_t i = 0; i < vocabulary; ++i) {
        float& logit = logits[static_cast<size_t>(2 * vocabulary + i)];
        logit = std::round(logit) * (i % 2 ? 1.0f : -1.0f) * 0.5f;
      }
      const Found got = best_logits(logits, rows, count);
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = logits.data() + r * vocabulary;
        std::vector<int32_t> ids(static_cast<size_t>(vocabulary));
        std::iota(ids.begin(), ids.end(), 0);
        std::stable_sort(ids.begin(), ids.end(),
                         [&](int32_t a, int32_t b) { return row[a] > row[b]; });
        double sum = 0;
        for (int64_t i = 0; i < vocabulary; ++i) sum += std::exp(double{row[i]} - row[ids[0]]);
        EXPECT_NEAR(got.log_sum[static_cast<size_t>(r)], row[ids[0]] + std::log(sum), 1e-6);
        for (int32_t i = 0; i < count; ++i) {
          const CudaTokenLogit& token = got.best[static_cast<size_t>(r * count + i)];
          const bool there = i < vocabulary;
          ASSERT_EQ(token.id, there ? ids[static_cast<size_t>(i)] : -1)
              << vocabulary << " tokens, row " << r << ", place " << i << " of " << count;
          if (there) {
            ASSERT_EQ(token.logit, row[token.id]);
          }
        }
      }
    }
  }
}

TEST_F(CudaSampling, OfAllowedTokensTheBestAreThoseOfARowWhereTheOthersAreForbidden) {
  Random random(87);
  for (const int64_t vocabulary : {7, 1024, 5000, 151936}) {
    const int64_t rows = 4, words = (vocabulary + 31) / 32 + 1;
    const std::vector<float> logits = random.normals(rows * vocabulary);
    // Row 0: every third; row 1: one; row 2: none; row 3: all.
    std::vector<uint32_t> allowed(static_cast<size_t>(rows * words));
    std::vector<float> masked(logits.size(), -INFINITY);
    for (int64_t id = 0; id < vocabulary; ++id) {
      for (const int64_t r : {0, 1, 3}) {
        if ((r == 0 && id % 3 != 0) || (r == 1 && id != vocabulary - 1)) continue;
        allowed[static_cast<size_t>(r * words + id / 32)] |= 1u << (id % 32);
        masked[static_cast<size_t>(r * vocabulary + id)] =
            logits[static_cast<size_t>(r * vocabulary + id)];
      }
    }
    for (const int32_t count : {1, 40, 128}) {
      const Found got = best_logits(logits, rows, count, allowed);
      const Found expected = best_logits(masked, rows, count),
                  whole = best_logits(logits, rows, count);
      for (size_t i = 0; i < got.best.size(); ++i) {
        ASSERT_EQ(got.best[i].id, expected.best[i].id) << vocabulary << " tokens, place " << i;
        ASSERT_EQ(got.best[i].logit, expected.best[i].logit);
      }
      EXPECT_EQ(got.log_sum, whole.log_sum) << "of all tokens";
    }
  }
}

TEST_F(CudaSampling, ForbiddenTokensAreNoneAndUnsoundRowsSaySo) {
  Random random(86);
  const int64_t rows = 5, vocabulary = 3000;
  std::vector<float> logits = random.normals(rows * vocabulary);
  std::fill_n(logits.begin(), vocabulary, -INFINITY);
  logits[1700] = -3;  // row 0: one token is allowed; row 1: none; the others are unsound
  std::fill_n(logits.begin() + vocabulary, vocabulary, -INFINITY);
  logits[static_cast<size_t>(2 * vocabulary + 7)] = NAN;
  logits[static_cast<size_t>(3 * vocabulary + 2999)] = INFINITY;
  for (const int32_t count : {1, 20}) {
    const Found got = best_logits(logits, rows, count);
    EXPECT_EQ(got.best[0].id, 1700);
    EXPECT_EQ(got.best[0].logit, -3);
    EXPECT_NEAR(got.log_sum[0], -3, 1e-6);
    if (count > 1) {
      EXPECT_EQ(got.best[1].id, -1);
    }
    EXPECT_EQ(got.best[static_cast<size_t>(count)].id, -1);
    EXPECT_EQ(got.log_sum[1], -INFINITY);
    EXPECT_TRUE(std::isnan(got.log_sum[2]));
    EXPECT_TRUE(std::isnan(got.log_sum[3]));
    EXPECT_TRUE(std::isfinite(got.log_sum[4]));
  }
}

}  // namespace
}  // namespace ktx::kernels
