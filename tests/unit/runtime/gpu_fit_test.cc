// Whether a plan fits into a GPU: lib/runtime/gpu/gpu_fit.
#include "lib/runtime/gpu/gpu_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

plan::DeviceMemory needs() {
  plan::DeviceMemory memory;
  memory.name = "cuda:0";
  memory.weight_bytes = 4 * kGiB;
  memory.arena_bytes = kGiB;
  memory.kv_token.whole = 128 << 10;
  return memory;
}
GpuFacts gpu(uint64_t free_bytes) {
  GpuFacts facts;
  facts.name = "a card";
  facts.compute_major = 8;
  facts.total_bytes = 24 * kGiB;
  facts.free_bytes = free_bytes;
  return facts;
}
// Fits a context of 4096 tokens: its cache takes 512 MiB, all else (with the reserve) 5.5 GiB.
Status fit(uint64_t free_bytes, int64_t step_tokens = 512) {
  plan::RunShape shape;
  shape.step_tokens = step_tokens;
  return check_gpu_fit(needs(), gpu(free_bytes), shape, {4096 / 64, 0});
}

TEST(GpuFit, WeightsActivationsCacheAndReserveAreCountedToTheByte) {
  EXPECT_TRUE(fit(6 * kGiB).ok());
  EXPECT_FALSE(fit(6 * kGiB - 1).ok());
}

TEST(GpuFit, LongChunksReserveMore) {
  EXPECT_TRUE(fit(6 * kGiB, 4096).ok());
  EXPECT_FALSE(fit(6 * kGiB, 8192).ok());
  EXPECT_TRUE(fit(6 * kGiB + 256 * kMiB, 8192).ok());
}

TEST(GpuFit, AContextThatFitsIsOffered) {
  const Status status = fit(5 * kGiB + 768 * kMiB);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("cuda:0 (a card) does not hold what the plan puts"));
  EXPECT_THAT(status.error().message, HasSubstr("--ctx 1792"));  // nine tenths of 256 MiB
}

TEST(GpuFit, WhereWeightsAloneAreTooMuchNoContextIsOffered) {
  const Status status = fit(4 * kGiB);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("no context fits beside the weights"));
}

TEST(GpuFit, OldGenerationsAreRefused) {
  GpuFacts facts = gpu(kGiB);
  EXPECT_TRUE(check_gpu_generation("cuda:0", facts).ok());
  facts.compute_major = 7, facts.compute_minor = 5;
  EXPECT_TRUE(check_gpu_generation("cuda:0", facts).ok());
  facts.compute_minor = 0;
  const Status status = check_gpu_generation("cuda:0", facts);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("has compute capability 7.0, and kernels exist for 7.5 and newer"));
}

}  // namespace
}  // namespace ktx::runtime
