#include "lib/formats/quantize_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace ktx {
namespace {

constexpr int64_t kElems = 256 * 24;

std::vector<float> normals(unsigned seed, float size = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kElems);
  for (float& v : x) v = normal(random) * size;
  return x;
}

std::vector<std::byte> rounded(DType dtype, const std::vector<float>& x,
                               const std::vector<std::byte>* before = nullptr) {
  std::vector<std::byte> out(static_cast<size_t>(*row_bytes(dtype, std::ssize(x))));
  quantize_row(dtype, x.data(), std::ssize(x), before ? before->data() : nullptr, out.data());
  return out;
}

std::vector<float> decoded(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> y(kElems);
  dequantize_row(dtype, bytes.data(), kElems, y.data());
  return y;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    squares += double{x[i]} * x[i];
  }
  return std::sqrt(error / squares);
}

std::vector<DType> formats() {
  std::vector<DType> found;
  for (const DTypeInfo& row : all_dtypes()) {
    if (can_quantize(row.dtype)) found.push_back(row.dtype);
  }
  return found;
}

// Errors of normally distributed weights: about those of ggml's searches without importances. Codes
// or scales in wrong bits would give an error of about 1.
TEST(QuantizeRow, ErrsAsLittleAsEachFormatCan) {
  const std::pair<DType, double> most[] = {
      {DType::F32, 0},      {DType::F16, 3e-4},     {DType::BF16, 2e-3},   {DType::Q4_0, 0.085},
      {DType::Q4_1, 0.073}, {DType::Q5_0, 0.042},   {DType::Q5_1, 0.036},  {DType::Q8_0, 0.0055},
      {DType::Q2_K, 0.285}, {DType::Q3_K, 0.15},    {DType::Q4_K, 0.075},  {DType::Q5_K, 0.038},
      {DType::Q6_K, 0.018}, {DType::IQ4_NL, 0.079}, {DType::IQ4_XS, 0.08}, {DType::MXFP4, 0.125}};
  EXPECT_EQ(std::size(most), formats().size());
  for (const auto& [dtype, error] : most) {
    ASSERT_TRUE(can_quantize(dtype)) << name(dtype);
    const std::vector<float> x = normals(5);
    EXPECT_LE(relative_error(x, decoded(dtype, rounded(dtype, x))), error) << name(dtype);
  }
}

TEST(QuantizeRow, KeepsTheValuesOfWeightsThatHaveNotChanged) {
  for (const DType dtype : formats()) {
    const std::vector<std::byte> before = rounded(dtype, normals(6));
    const std::vector<float> values = decoded(dtype, before);
    EXPECT_EQ(decoded(dtype, rounded(dtype, values, &before)), values) << name(dtype);
  }
}

// The scales of before are of use for a small change, new ones for a large one.
TEST(QuantizeRow, TakesTheBetterScales) {
  for (const DType dtype : formats()) {
    const std::vector<std::byte> before = rounded(dtype, normals(7));
    std::vector<float> x = decoded(dtype, before);
    for (const float change : {0.001f, 4.f}) {
      const std::vector<float> more = normals(8, change * 0.02f);
      for (size_t i = 0; i < x.size(); ++i) x[i] += more[i];
      const double with = relative_error(x, decoded(dtype, rounded(dtype, x, &before)));
      EXPECT_LE(with, relative_error(x, decoded(dtype, rounded(dtype, x))) + 1e-9) << name(dtype);
    }
  }
}

// Every weight has the level that is nearest with its group's scale: no other one of the block's
// decoded values in the group is nearer.
TEST(QuantizeRow, GivesEachWeightTheNearestLevel) {
  for (const DType dtype : formats()) {
    if (info(dtype).block_elems == 1) continue;
    const std::vector<float> x = normals(9);
    const std::vector<float> y = decoded(dtype, rounded(dtype, x));
    constexpr size_t kGroup = 16;  // the smallest of all formats
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t k = i / kGroup * kGroup; k < i / kGroup * kGroup + kGroup; ++k) {
        ASSERT_LE(std::abs(x[i] - y[i]), std::abs(x[i] - y[k]) * 1.0001f + 1e-7f)
            << name(dtype) << ", element " << i;
      }
    }
  }
}

TEST(QuantizeRow, TakesEveryFloatAndEveryBlockOfBefore) {
  std::mt19937 random(10);
  std::vector<float> x = normals(11);
  const float ends[] = {0,
                        -0.f,
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::lowest(),
                        std::numeric_limits<float>::denorm_min()};
  for (size_t i = 0; i < x.size(); i += 5) x[i] = ends[random() % std::size(ends)];
  std::fill_n(x.begin(), 512, 0.f);
  std::fill_n(x.begin() + 512, 512, 1.f);
  std::fill_n(x.begin() + 1024, 512, -1.f);
  for (const DType dtype : formats()) {
    std::vector<std::byte> before(static_cast<size_t>(*row_bytes(dtype, kElems)));
    for (std::byte& byte : before) byte = static_cast<std::byte>(random());
    const std::vector<float> y = decoded(dtype, rounded(dtype, x, &before));
    for (size_t i = 0; i < 512; ++i) ASSERT_EQ(y[i], 0.f) << name(dtype) << ' ' << i;
    for (size_t i = 512; i < 1536; ++i) {
      ASSERT_NEAR(y[i], x[i], 0.03f) << name(dtype) << ' ' << i;
    }
    if (info(dtype).block_elems == 1) continue;
    for (const float value : y) ASSERT_TRUE(std::isfinite(value)) << name(dtype);
  }
}

}  // namespace
}  // namespace ktx
