#include "lib/runtime/engine/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

// 8 GiB of weights, 1 GiB of activations, a cache of 1 MiB per token.
plan::PlanView model() {
  static const plan::SegmentRecord segment = {0, 0, 4096, 8 * kGib, 0, 1};
  static const program::Program program = [] {
    program::Program made;
    made.buffers = {{kGib, 0, 0}};
    made.kv_slots = {{0, 1024, 256, 256, "cpu", 0}};  // F16: 1 MiB
    return made;
  }();
  plan::PlanView plan;
  plan.segments = {&segment, 1};
  plan.program = &program;
  plan.facts.context_length = 32768;
  plan.facts.default_ctx = 4096;
  return plan;
}

TEST(Fit, TakesDefaultsFromThePlan) {
  const Sizes sizes = choose_sizes(model(), {}).take();
  EXPECT_EQ(sizes.shape.ctx, 4096);
  EXPECT_EQ(sizes.shape.max_batch, 1);
  EXPECT_EQ(sizes.shape.step_tokens, 512);
  EXPECT_EQ(sizes.shape.step_outputs, 1);
  EXPECT_EQ(sizes.precision, Precision::Fast);
  EXPECT_EQ(sizes.shape.kv_type, plan::KvType::F16);
  EXPECT_EQ(sizes.memory.kv_bytes, 4 * kGib);
  EXPECT_TRUE(sizes.notes.empty());
}

TEST(Fit, ExactKeepsTheCacheInF32) {
  EngineOptions options;
  options.precision = Precision::Exact;
  options.kv_type = plan::KvType::Q8_0;
  const Sizes sizes = choose_sizes(model(), options).take();
  EXPECT_EQ(sizes.shape.kv_type, plan::KvType::F32);
  EXPECT_EQ(sizes.memory.kv_bytes, 8 * kGib);
  EXPECT_EQ(sizes.notes.size(), 1u);
}

TEST(Fit, WarnsOfAContextBeyondTheModels) {
  EngineOptions options;
  options.ctx = 40000;
  const Sizes sizes = choose_sizes(model(), options).take();
  ASSERT_EQ(sizes.notes.size(), 1u);
  EXPECT_THAT(sizes.notes[0], HasSubstr("more than the 32768 tokens"));
}

TEST(Fit, NamesAContextThatFits) {
  Sizes sizes = choose_sizes(model(), {}).take();
  EXPECT_TRUE(check_fit(5 * kGib, 64 * kGib, sizes).ok()) << "weights are mapped, not counted";
  const Status status = check_fit(3 * kGib, 4 * kGib, sizes);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("activations"));
  EXPECT_THAT(status.error().message, HasSubstr("1 x 4096 tokens in F16"));
  EXPECT_THAT(status.error().message, HasSubstr("3.00 GiB  of 4.00 GiB"));
  EngineOptions options;
  options.ctx = 1792;  // 90 % of the 2 GiB that are left
  EXPECT_THAT(status.error().message, HasSubstr("--ctx 1792"));
  sizes = choose_sizes(model(), options).take();
  EXPECT_TRUE(check_fit(3 * kGib, 4 * kGib, sizes).ok());
}

TEST(Fit, SaysWhenWeightsWillBeReadAgain) {
  Sizes sizes = choose_sizes(model(), {}).take();
  EXPECT_TRUE(check_fit(6 * kGib, 8 * kGib, sizes).ok());
  ASSERT_EQ(sizes.notes.size(), 1u);
  EXPECT_THAT(sizes.notes[0], HasSubstr("read from the file again and again"));
}

TEST(Fit, KeepsToTheBudgetOfTheCache) {
  EngineOptions options;
  options.max_batch = 8;
  options.kv_budget_bytes = 6 * static_cast<int64_t>(kGib);
  const Sizes sizes = choose_sizes(model(), options).take();
  EXPECT_EQ(sizes.kv_blocks.whole, 96u);
  EXPECT_EQ(sizes.memory.kv_bytes, 6 * kGib);
  EXPECT_TRUE(sizes.notes.empty()) << "one context fits";
}

}  // namespace
}  // namespace ktx::runtime
