// Rotary tables against figures worked out by hand from the published formulas.
#include "lib/arch/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ktx::arch {
namespace {

TEST(RopeTable, PlainAndLinear) {
  RopeParams rope;
  rope.theta = 10000;
  const RopeTable plain = rope_table(rope, 8, false, 0);
  ASSERT_EQ(plain.inv_freq.size(), 4u);
  EXPECT_FLOAT_EQ(plain.inv_freq[0], 1);
  EXPECT_FLOAT_EQ(plain.inv_freq[1], 0.1F);
  EXPECT_FLOAT_EQ(plain.inv_freq[3], 0.001F);
  EXPECT_EQ(plain.mscale, 1);
  rope.type = RopeType::Linear;
  rope.factor = 4;
  EXPECT_FLOAT_EQ(rope_table(rope, 8, false, 0).inv_freq[1], 0.025F);
}

// Llama 3.1: wavelengths below 2048 stay, above 8192 grow by 8.
TEST(RopeTable, Llama3KeepsFastAndSlowsSlow) {
  RopeParams rope;
  rope.type = RopeType::Llama3;
  rope.theta = 500000;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 8192;
  const RopeTable table = rope_table(rope, 128, false, 0);
  RopeParams unscaled;
  unscaled.theta = 500000;
  const RopeTable plain = rope_table(unscaled, 128, false, 0);
  EXPECT_EQ(table.inv_freq[0], plain.inv_freq[0]);
  EXPECT_EQ(table.inv_freq[28], plain.inv_freq[28]);  // wavelength 1956
  EXPECT_FLOAT_EQ(table.inv_freq[63], plain.inv_freq[63] / 8);
  EXPECT_FLOAT_EQ(table.inv_freq[35], plain.inv_freq[35] / 8);  // wavelength 8219
  // 32: wavelength 4442.9, turns 1.843848, smooth 0.281283 -> 0.371122 of the plain one
  EXPECT_NEAR(table.inv_freq[32] / plain.inv_freq[32], 0.371122, 1e-6);
}

TEST(RopeTable, YarnMscaleOfDeepseek) {
  RopeParams rope;
  rope.type = RopeType::Yarn;
  rope.theta = 10000;
  rope.factor = 40;
  rope.original_context = 4096;
  rope.mscale = 0.707;
  rope.mscale_all_dim = 0.707;
  const RopeTable table = rope_table(rope, 64, true, 0);
  EXPECT_DOUBLE_EQ(table.mscale, 1);
  // (0.1 * 0.707 * ln 40 + 1)^2
  EXPECT_NEAR(table.softmax_mscale, 1.589626, 1e-6);
  EXPECT_EQ(rope_table(rope, 64, false, 0).softmax_mscale, 1);
  // The ramp runs from index 10 to 23.
  EXPECT_FLOAT_EQ(table.inv_freq[10], std::pow(10000.0F, -20.0F / 64));
  EXPECT_FLOAT_EQ(table.inv_freq[23], std::pow(10000.0F, -46.0F / 64) / 40);
  EXPECT_GT(table.inv_freq[11] * std::pow(10000.0F, 22.0F / 64), 0.9F);
}

TEST(RopeTable, YarnWithoutMscaleGrowsByTheFactor) {
  RopeParams rope;
  rope.type = RopeType::Yarn;
  rope.factor = 4;
  rope.original_context = 32768;
  EXPECT_NEAR(rope_table(rope, 128, false, 0).mscale, 1 + 0.1 * std::log(4.0), 1e-12);
  rope.attention_factor = 1.5;
  EXPECT_EQ(rope_table(rope, 128, false, 0).mscale, 1.5);
}

TEST(RopeTable, LongRopeDividesByTheListOfTheContext) {
  RopeParams rope;
  rope.type = RopeType::LongRope;
  rope.factor = 32;
  rope.original_context = 4096;
  rope.short_factors = {1, 2};
  rope.long_factors = {4, 16};
  const RopeTable up_to = rope_table(rope, 4, false, 4096),
                  above = rope_table(rope, 4, false, 4097);
  EXPECT_EQ(up_to.context, 4096);
  EXPECT_EQ(above.context, 0) << "any";
  EXPECT_FLOAT_EQ(up_to.inv_freq[1], 0.01F / 2);
  EXPECT_FLOAT_EQ(above.inv_freq[0], 0.25F);
  EXPECT_FLOAT_EQ(above.inv_freq[1], 0.01F / 16);
  EXPECT_NEAR(up_to.mscale, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-12);
  EXPECT_EQ(above.mscale, up_to.mscale);
  rope.attention_factor = 1.25;
  EXPECT_EQ(rope_table(rope, 4, false, 1).mscale, 1.25);
}

TEST(RopeTable, FactorsDivide) {
  RopeParams rope;
  rope.theta = 10000;
  const float factors[] = {1, 8};
  const std::vector<float> freq = rope_from_factors(rope, factors);
  EXPECT_FLOAT_EQ(freq[0], 1);
  EXPECT_FLOAT_EQ(freq[1], 0.01F / 8);
}

}  // namespace
}  // namespace ktx::arch
