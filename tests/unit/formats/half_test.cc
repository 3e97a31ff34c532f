#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "lib/formats/dtype.h"

namespace ktx {
namespace {

// The value of a finite half by the definition of the format.
double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half >> 15 != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryHalfBecomesItsFloat) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, half_value(half)) << bits;
    } else if ((bits & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {  // quiet, payload kept, as F16C does it
      ASSERT_EQ(std::bit_cast<uint32_t>(value) & 0x7fffffff, 0x7fc00000u | (bits & 0x3ff) << 13);
    }
  }
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7fff) > 0x7c00;
    ASSERT_EQ(float_to_half(half_to_float(static_cast<uint16_t>(bits))), bits | (nan ? 0x200 : 0));
  }
}

// Between each two neighbours the middle goes to the even one, and the floats
// just below and above the middle to the nearer one.
TEST(Half, RoundsToNearestEvenEverywhere) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const double above = high == 0x7c00 ? 65536.0 : half_value(high);
    const auto middle = static_cast<float>((half_value(low) + above) / 2);
    ASSERT_EQ(float_to_half(middle), low % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, INFINITY)), high) << bits;
    ASSERT_EQ(float_to_half(-middle), (low % 2 == 0 ? low : high) | 0x8000) << bits;
  }
}

TEST(Half, ExtremesOfFloat) {
  EXPECT_EQ(float_to_half(1e-45f), 0);
  EXPECT_EQ(float_to_half(-1e-45f), 0x8000);
  EXPECT_EQ(float_to_half(3.4e38f), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0x7f800001u)), 0x7e00);
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(bfloat16_to_float(value)), static_cast<uint32_t>(bits) << 16);
    const bool nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(float_to_bfloat16(bfloat16_to_float(value)), bits | (nan ? 0x40 : 0));
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits << 16 | 0x8000)), even);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits << 16 | 0x7fff)), bits);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits << 16 | 0x8001)), bits + 1);
  }
}

}  // namespace
}  // namespace ktx
