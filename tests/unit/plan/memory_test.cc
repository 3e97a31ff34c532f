#include "lib/plan/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/plan/device_memory.h"

namespace ktx::plan {
namespace {

using ::testing::ElementsAre;

constexpr KvWidths kWindow = {.window = 128};

TEST(Memory, ArenaIsTheSumOfItsFormulasRoundedUp) {
  const program::Buffer buffers[] = {{0, 100, 0}, {20, 0, 0}, {0, 0, 1000}, {0, 0, 0}};
  const auto arena = lay_out_arena(buffers, 3, 2);
  ASSERT_TRUE(arena.ok());
  EXPECT_THAT(arena->offsets, ElementsAre(0u, 320u, 384u, 384u + 2048));
  EXPECT_EQ(arena->total_bytes, 384u + 2048);
}

TEST(Memory, OverflowIsAnError) {
  const program::Buffer by_token[] = {{0, uint64_t{1} << 62, 0}};
  EXPECT_TRUE(lay_out_arena(by_token, 1, 1).ok());
  EXPECT_FALSE(lay_out_arena(by_token, 4, 1).ok());
  const program::Buffer almost[] = {{~uint64_t{0} - 10, 0, 0}};
  EXPECT_FALSE(lay_out_arena(almost, 1, 1).ok());
  const program::Buffer sum[] = {{uint64_t{1} << 63, 0, 0}, {uint64_t{1} << 63, 0, 0}};
  EXPECT_FALSE(lay_out_arena(sum, 1, 1).ok());
}

TEST(Memory, KeysAndValuesByElementType) {
  const program::KvSlot slot = {0, 8, 128, 128, "cpu", 0};
  EXPECT_EQ(kv_token_bytes(slot, KvType::F32), 8u * 256 * 4);
  EXPECT_EQ(kv_token_bytes(slot, KvType::F16), 8u * 256 * 2);
  EXPECT_EQ(kv_token_bytes(slot, KvType::Q8_0), 8u * 256 / 32 * 34);
  EXPECT_EQ(kv_block_bytes(slot, KvType::F16), 64u * 8 * 256 * 2);
  // MLA: one head, values within the key.
  EXPECT_EQ(kv_token_bytes({0, 1, 576, 0, "cpu", 0}, KvType::F16), 1152u);
}

TEST(Memory, OddHeadsKeepF16WhereQ8DoesNotFit) {
  const program::KvSlot slot = {0, 2, 80, 80, "cpu", 0};
  EXPECT_EQ(kv_type_for(slot, KvType::Q8_0), KvType::F16);
  EXPECT_EQ(kv_token_bytes(slot, KvType::Q8_0), 2u * 160 * 2);
  EXPECT_EQ(kv_type_for(slot, KvType::F32), KvType::F32);
}

TEST(Memory, EstimateAddsWeightsArenaAndCache) {
  const SegmentRecord segments[] = {{0, 0, 4096, 1000, 0, 1}, {0, 1, 8192, 500, 1, 1}};
  program::Program program;
  program.buffers = {{0, 64, 0}};
  program.kv_slots = {{0, 1, 32, 32, "cpu", 0}, {1, 1, 32, 32, "cpu", 0}};
  PlanView plan;
  plan.segments = segments;
  plan.program = &program;
  RunShape shape;
  shape.ctx = 65;  // two blocks
  shape.max_batch = 3;
  shape.step_tokens = 10;
  const auto estimate = estimate_memory(plan, shape);
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->weight_bytes, 1000u);
  EXPECT_EQ(estimate->carried_bytes, 500u);
  EXPECT_EQ(estimate->arena_bytes, 640u);
  EXPECT_EQ(estimate->kv_token.whole, 2u * 64 * 2);
  EXPECT_EQ(estimate->kv_blocks.whole, 6u);
  EXPECT_EQ(estimate->kv_bytes, 6u * 64 * 2 * 64 * 2);
  EXPECT_EQ(estimate->total_bytes, 1000u + 640 + 6 * 64 * 2 * 64 * 2);
  shape.ctx = int64_t{1} << 60;
  EXPECT_FALSE(estimate_memory(plan, shape).ok());
  shape.ctx = -1;
  EXPECT_FALSE(estimate_memory(plan, shape).ok());
}

TEST(Memory, WindowsKeepWhatTheyRead) {
  const program::KvSlot slots[] = {
      {0, 1, 32, 32, "cpu", 128}, {1, 1, 32, 32, "cpu", 0}, {2, 1, 32, 32, "cpu", 64}};
  EXPECT_EQ(kv_widths(slots).window, 128);
  const KvTokenBytes token = kv_token_bytes(slots, KvType::F16);
  EXPECT_EQ(token.whole, 128u);
  EXPECT_EQ(token.window, 256u);
  RunShape shape;
  shape.ctx = 131072;
  const KvBlocks blocks = *kv_blocks(kWindow, shape);
  EXPECT_EQ(blocks.whole, 2048u);
  EXPECT_EQ(blocks.window, (3u + 2) + 8 + (2 + 1)) << "window and slack, chunk, another text's end";
  EXPECT_EQ(estimate_memory(0, {}, slots, kWindow, shape)->kv_bytes, *token.times(blocks));
  shape.ctx = 100;
  EXPECT_EQ(kv_blocks(kWindow, shape)->window, 2u) << "never more than the context";
  EXPECT_EQ(kv_blocks({}, shape)->window, 0u);
}

TEST(Memory, ABudgetGoesToTheWindowsFirst) {
  const KvTokenBytes token{128, 256};
  RunShape shape;
  shape.ctx = 131072;
  const uint64_t whole = 64 * token.whole, window = 64 * token.window;
  const KvBlocks all = *kv_blocks(kWindow, shape);
  EXPECT_EQ(kv_blocks(kWindow, shape, token, 0)->whole, 2048u);
  EXPECT_EQ(kv_blocks(kWindow, shape, token, *token.times(all))->whole, 2048u);
  const auto half = kv_blocks(kWindow, shape, token, 1000 * whole + 16 * window);
  EXPECT_EQ(half->whole, 1000u);
  EXPECT_EQ(half->window, 16u);
  const auto little = kv_blocks(kWindow, shape, token, 10 * (whole + window) + 1);
  EXPECT_EQ(little->whole, 10u);
  EXPECT_EQ(little->window, 10u);
  const auto nothing = kv_blocks(kWindow, shape, token, whole + window - 1);
  ASSERT_FALSE(nothing.ok());
  EXPECT_NE(nothing.error().message.find("less than a block of 64 tokens takes"),
            std::string::npos);
}

TEST(Memory, ABudgetGoesToTheStatesOfRunningSequencesFirst) {
  constexpr uint64_t kMib = 1 << 20;
  const KvTokenBytes token{256, 0};  // a block: 16 KiB
  RunShape shape;
  shape.ctx = 4096;
  shape.max_batch = 2;
  shape.state_bytes = kMib;
  const KvBlocks all = *kv_blocks({}, shape);
  EXPECT_EQ(all.whole, 128u);
  EXPECT_EQ(all.states, 2 * (2 + 4));
  EXPECT_EQ(kv_blocks({}, shape, token, 14 * kMib)->whole, 128u);
  EXPECT_EQ(kv_blocks({}, shape, token, 14 * kMib)->states, 12u);
  // 4 MiB for what runs; of the other 4 snapshots get 8 / (8 + 2).
  const auto some = kv_blocks({}, shape, token, 8 * kMib);
  EXPECT_EQ(some->states, 4u + 3);
  EXPECT_EQ(some->whole, 64u);
  const auto least = kv_blocks({}, shape, token, 4 * kMib + 16384);
  EXPECT_EQ(least->states, 4u);
  EXPECT_EQ(least->whole, 1u);
  const auto nothing = kv_blocks({}, shape, token, 4 * kMib);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(
      nothing.error().message,
      "the KV budget of 4.00 MiB is less than the states of 2 sequences take (4.00 MiB); write "
      "--kv-budget 7M, or a lower --max-batch");
}

TEST(Memory, TypesHaveNames) {
  EXPECT_EQ(kv_type_from_name("Q8_0"), KvType::Q8_0);
  EXPECT_EQ(name(KvType::F16), "F16");
  EXPECT_FALSE(kv_type_from_name("f16").has_value());
}

}  // namespace
}  // namespace ktx::plan
