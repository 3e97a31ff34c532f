#include "lib/program/joint_experts.h"

#include <gtest/gtest.h>

namespace ktx::program {
namespace {

TEST(JointExperts, AreDividedSoThatBothTakeAsLong) {
  EXPECT_EQ(experts_of_gpu(128, 192, 192), 64);
  EXPECT_EQ(experts_of_gpu(128, 512, 192), 93);
  EXPECT_EQ(experts_of_gpu(128, 1344, 192), 112);
  EXPECT_EQ(experts_of_gpu(128, 1345, 192), 128) << "less than an eighth for the CPU";
  EXPECT_EQ(experts_of_gpu(128, 512, 0), 128) << "the GPU computes all";
  // The CPU's part takes tokens / joint of the copy of all, its share of the experts.
  for (int64_t tokens = 32; tokens <= 1344; tokens += 32) {
    const double of_gpu = experts_of_gpu(4096, tokens, 192) / 4096.0;
    const double cpu = (1 - of_gpu) * static_cast<double>(tokens) / 192;
    EXPECT_NEAR(cpu, of_gpu, 0.01) << tokens;
  }
}

}  // namespace
}  // namespace ktx::program
