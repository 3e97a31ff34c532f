#include "lib/runtime/cache/kv_pools.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

// Windows of 64 and 128 beside a slot that keeps everything.
const program::KvSlot kSlots[] = {
    {0, 1, 32, 32, "cpu", 64}, {1, 1, 32, 32, "cpu", 0}, {2, 1, 32, 32, "cpu", 128}};

TEST(KvPools, SlotsAreInTheirPools) {
  const KvPools kv = KvPools::create(kSlots, plan::KvType::F32, {4, 4}).take();
  EXPECT_EQ(kv.passing().size(), 1u);
  EXPECT_EQ(kv.kind_of(0), SequenceKind::Window);
  EXPECT_EQ(kv.kind_of(1), SequenceKind::Whole);
  EXPECT_EQ(kv.kind_of(2), SequenceKind::Window);
  const int64_t slot = 64 * (32 + 32) * 4;
  EXPECT_EQ(kv.of(SequenceKind::Whole).block_bytes(), slot);
  EXPECT_EQ(kv.of(SequenceKind::Window).block_bytes(), 2 * slot);
  EXPECT_EQ(kv.slot_offset(1), 0);
  EXPECT_EQ(kv.slot_offset(2), slot);
  EXPECT_EQ(kv.token_row_bytes(SequenceKind::Whole), (32 + 32) * 4);
  EXPECT_EQ(kv.token_row_bytes(SequenceKind::Window), 2 * (32 + 32) * 4);
}

TEST(KvPools, ModelsWithoutWindowsHaveOnePool) {
  const program::KvSlot slot = {0, 1, 32, 32, "cpu", 0};
  KvPools kv = KvPools::create({&slot, 1}, plan::KvType::F32, {4, 0}).take();
  KvTables tables;
  ASSERT_TRUE(kv.grow(tables, 200));
  EXPECT_EQ(tables.whole.size(), 4u);
  EXPECT_TRUE(tables.window.empty());
  EXPECT_TRUE(kv.own(tables, 150));
  kv.trim(tables, 200);
  EXPECT_TRUE(kv.can_continue(tables, 1));
  kv.shrink(tables, 0);
  EXPECT_EQ(kv.of(SequenceKind::Whole).free_blocks(), 4);
}

TEST(KvPools, ASequenceKeepsItsWindowAndSomeTokensMore) {
  KvPools kv = KvPools::create(kSlots, plan::KvType::F32, {20, 20}).take();
  KvTables tables;
  ASSERT_TRUE(kv.grow(tables, 1000));
  EXPECT_EQ(kv.first_read_block(SequenceKind::Window, 1000), (1000 - 127) / 64);
  EXPECT_EQ(kv.first_kept_block(SequenceKind::Window, 1000), (1000 - 127 - 64) / 64);
  kv.trim(tables, 1000);
  EXPECT_EQ(tables.window[11], nullptr);
  EXPECT_NE(tables.window[12], nullptr);
  EXPECT_EQ(kv.of(SequenceKind::Window).free_blocks(), 20 - 4);
  EXPECT_EQ(kv.of(SequenceKind::Whole).free_blocks(), 20 - 16);
  for (int64_t length = 1000; length >= 1000 - plan::kKvWindowSlack; --length) {
    EXPECT_TRUE(kv.can_continue(tables, length)) << length;
  }
  EXPECT_FALSE(kv.can_continue(tables, 500));
  EXPECT_FALSE(kv.can_continue(tables, 1));
  EXPECT_FALSE(kv.can_continue(tables, 0)) << "an empty text is not shorter, but nothing";
  kv.shrink(tables, 0);
  EXPECT_TRUE(kv.can_continue(tables, 0));
  EXPECT_EQ(kv.of(SequenceKind::Window).free_blocks(), 20);
  EXPECT_EQ(kv.of(SequenceKind::Whole).free_blocks(), 20);
}

TEST(KvPools, ChangesNothingWhenEitherPoolIsFull) {
  KvPools kv = KvPools::create(kSlots, plan::KvType::F32, {8, 4}).take();
  KvTables tables;
  ASSERT_TRUE(kv.grow(tables, 128));
  EXPECT_FALSE(kv.grow(tables, 5 * 64)) << "the window pool";
  EXPECT_EQ(tables.whole.size(), 2u);
  EXPECT_EQ(tables.window.size(), 2u);
  EXPECT_EQ(kv.of(SequenceKind::Whole).free_blocks(), 6);
  EXPECT_EQ(kv.of(SequenceKind::Window).free_blocks(), 2);
  EXPECT_TRUE(kv.grow_from(tables, 8 * 64, {.window = 6})) << "blocks 2 to 5 are not wanted";
  EXPECT_EQ(tables.window[5], nullptr);
  EXPECT_FALSE(kv.grow_from(tables, 9 * 64, {.window = 9})) << "the other pool";
  kv.shrink(tables, 0);
  EXPECT_EQ(kv.of(SequenceKind::Window).free_blocks(), 4);
}

// What kv_blocks() grants suffices for all sequences in any phase, the chunk of one of them.
TEST(KvPools, TheGrantedBlocksSuffice) {
  for (const int64_t chunk : {1, 7, 64, 100, 512}) {
    for (const int64_t batch : {1, 3}) {
      plan::RunShape shape;
      shape.ctx = 4096;
      shape.max_batch = batch;
      shape.step_tokens = std::max(chunk, batch);
      const plan::KvBlocks blocks = *plan::kv_blocks(plan::kv_widths(kSlots), shape);
      EXPECT_LT(blocks.window, blocks.whole);
      KvPools kv = KvPools::create(kSlots, plan::KvType::F16, blocks).take();
      std::vector<KvTables> tables(static_cast<size_t>(batch));
      std::vector<int64_t> lengths(tables.size());
      for (int64_t step = 0; lengths.back() + chunk <= shape.ctx; ++step) {
        const auto s = static_cast<size_t>(step % batch);
        if (lengths[s] + chunk > shape.ctx) break;
        for (size_t t = 0; t < tables.size(); ++t) kv.trim(tables[t], lengths[t]);
        ASSERT_TRUE(kv.grow(tables[s], lengths[s] + chunk)) << chunk << " x " << batch;
        lengths[s] += chunk;
      }
      for (KvTables& table : tables) kv.shrink(table, 0);
    }
  }
}

}  // namespace
}  // namespace ktx::runtime
