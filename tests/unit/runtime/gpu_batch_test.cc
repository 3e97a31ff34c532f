#include "lib/runtime/gpu/gpu_batch.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

constexpr SequenceKind kBlocks[] = {SequenceKind::Whole};

// Two sequences: one token far inside the first, three at the start of the second.
TEST(GpuBatch, HoldsTokensTablesAndPaddingWhereItSays) {
  const program::KvSlot slot = {0, 1, 64, 64, "cpu", 0};
  KvPools kv = KvPools::create({&slot, 1}, plan::KvType::F16, {10, 0}, {false}).take();
  KvTables first, second;
  ASSERT_TRUE(kv.grow(first, 130));
  ASSERT_TRUE(kv.grow(second, 3));
  Batch batch;
  batch.tokens = 4;
  batch.outputs = 2;
  batch.ids = {7, 1, 2, 3};
  batch.position = {129, 0, 1, 2};
  batch.sequence = {0, 1, 1, 1};
  batch.text_end = {129, 2, 2, 2};
  batch.output_rows = {0, 3};
  batch.tables.whole = {first.whole.data(), second.whole.data()};

  const GpuBatchLayout layout(8, 4, 3, 200, kBlocks);
  std::vector<std::byte> memory(static_cast<size_t>(layout.bytes()), std::byte{0x55});
  const GpuShape shape{8, 4, 256, false};
  EXPECT_LE(layout.fill(memory.data(), batch, 2, shape, kv), layout.bytes());
  const GpuBatch out = layout.at(memory.data());
  const auto ints = [](const int32_t* at, int count) {
    return std::vector<int32_t>(at, at + count);
  };
  EXPECT_EQ(ints(out.ids, 4), (std::vector<int32_t>{7, 1, 2, 3}));
  EXPECT_EQ(ints(out.position, 8), (std::vector<int32_t>{129, 0, 1, 2, -1, -1, -1, -1}));
  EXPECT_EQ(ints(out.sequence, 8), (std::vector<int32_t>{0, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(ints(out.text_end, 8), (std::vector<int32_t>{129, 2, 2, 2, -1, -1, -1, -1}));
  EXPECT_EQ(ints(out.output_rows, 4), (std::vector<int32_t>{0, 3, -1, -1}));
  EXPECT_EQ(out.table_stride, 4);
  EXPECT_EQ(ints(out.tables.whole, 3), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(ints(out.tables.whole + out.table_stride, 1), (std::vector<int32_t>{3}));
}

// A prompt with a snapshot behind its second token, a text whose item had no tokens, and one that
// goes on; texts behind the last have no segments.
TEST(GpuBatch, HoldsTheSegmentsOfStates) {
  const program::KvSlot slot = {0, 1, 64, 64, "cpu", 0};
  KvPools kv = KvPools::create({&slot, 1}, plan::KvType::F16, {10, 0}, {false}).take();
  KvTables first, second;
  ASSERT_TRUE(kv.grow(first, 3));
  ASSERT_TRUE(kv.grow(second, 6));
  Batch batch;
  batch.tokens = 4;
  batch.ids = {7, 1, 2, 3};
  batch.position = {0, 1, 2, 5};
  batch.sequence = {0, 0, 0, 2};
  batch.text_end = {2, 2, 2, 5};
  batch.tables.whole = {first.whole.data(), nullptr, second.whole.data()};
  batch.states.resize(3);
  batch.states[0].outs = {{2, 4, nullptr, true}, {3, 1, nullptr, false}};
  batch.states[1].outs = {{1, 5, nullptr, false}};  // of an earlier pass
  batch.states[2].in_slot = 3;
  batch.states[2].outs = {{1, 0, nullptr, false}};
  const GpuBatchLayout layout(8, 4, 3, 200, kBlocks, {8, 6});
  std::vector<std::byte> memory(static_cast<size_t>(layout.bytes()), std::byte{0x55});
  EXPECT_LE(layout.fill(memory.data(), batch, 3, {4, 4, 256, false}, kv), layout.bytes());
  const GpuBatch out = layout.at(memory.data());
  EXPECT_EQ(out.most_texts, 8);
  EXPECT_EQ(std::vector<int32_t>(out.texts, out.texts + 9),
            (std::vector<int32_t>{0, 2, 3, 3, 3, 3, 3, 3, 3}));
  const int32_t want[3][4] = {{0, 2, -1, 4}, {2, 1, 4, 1}, {3, 1, 3, 0}};
  for (size_t i = 0; i < 3; ++i) {
    const kernels::StateSegment& segment = out.segments[i];
    EXPECT_EQ(segment.first, want[i][0]);
    EXPECT_EQ(segment.tokens, want[i][1]);
    EXPECT_EQ(segment.in, want[i][2]);
    EXPECT_EQ(segment.out, want[i][3]);
  }
  EXPECT_EQ(out.tables.whole[0], 0) << "behind them";
  EXPECT_EQ(GpuBatchLayout(8, 4, 3, 200, kBlocks).at(memory.data()).texts, nullptr);
}

// Tables of the window pool stand behind the others'; blocks that are gone are number 0.
TEST(GpuBatch, HoldsTheTablesOfWindows) {
  const program::KvSlot slots[] = {{0, 1, 64, 64, "cpu", 0}, {1, 1, 64, 64, "cpu", 64}};
  KvPools kv = KvPools::create(slots, plan::KvType::F16, {10, 10}).take();
  KvTables first, second;
  ASSERT_TRUE(kv.grow(first, 330));
  ASSERT_TRUE(kv.grow(second, 65));
  kv.trim(first, 329);
  Batch batch;
  batch.tokens = 2;
  batch.ids = {7, 1};
  batch.position = {329, 64};
  batch.sequence = {0, 1};
  batch.text_end = {329, 64};
  batch.tables.whole = {first.whole.data(), second.whole.data()};
  batch.tables.window = {first.window.data(), second.window.data()};
  const GpuBatchLayout layout(8, 4, 3, 400, kBlockKinds);
  std::vector<std::byte> memory(static_cast<size_t>(layout.bytes()), std::byte{0x55});
  EXPECT_LE(layout.fill(memory.data(), batch, 2, {8, 4, 400, true}, kv), layout.bytes());
  const GpuBatch out = layout.at(memory.data());
  const auto ints = [](const int32_t* at, int count) {
    return std::vector<int32_t>(at, at + count);
  };
  EXPECT_EQ(ints(out.tables.whole, 6), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ints(out.tables.window, 6), (std::vector<int32_t>{0, 0, 0, 3, 4, 5}));
  EXPECT_EQ(ints(out.tables.whole + out.table_stride, 2), (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(ints(out.tables.window + out.table_stride, 2), (std::vector<int32_t>{6, 7}));
}

// A cache of another device's slots keeps no bytes, but still numbers its blocks.
TEST(GpuBatch, BlocksOfOtherDevicesHaveNumbers) {
  const program::KvSlot slot = {0, 8, 128, 128, "cpu", 0};
  KvCache kv = KvCache::create({&slot, 1}, plan::KvType::F16, 5, {false}).take();
  EXPECT_EQ(kv.block_bytes(), 64);
  std::vector<std::byte*> table;
  ASSERT_TRUE(kv.grow(table, 5 * 64));
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(kv.block_number(table[i]), i);
  std::pair<int64_t, int64_t> copied{-1, -1};
  kv.add_copy([&](int64_t to, int64_t from) { copied = {to, from}; });
  kv.copy(table[3], table[1]);
  EXPECT_EQ(copied, (std::pair<int64_t, int64_t>{3, 1}));
}

// Rows of the images among five tokens, and positions of all. What is uploaded ends behind the last
// row, and before the first where none comes.
TEST(GpuBatch, HoldsWhatComesWithImages) {
  const program::KvSlot slot = {0, 1, 64, 64, "cpu", 0};
  KvPools kv = KvPools::create({&slot, 1}, plan::KvType::F16, {10, 0}, {false}).take();
  KvTables table;
  ASSERT_TRUE(kv.grow(table, 5));
  Batch batch;
  batch.tokens = 5;
  batch.ids = {7, 0, 0, 2, 0};
  batch.position = {0, 1, 2, 3, 4};
  batch.sequence = {0, 0, 0, 0, 0};
  batch.text_end = batch.position;
  batch.tables.whole = {table.whole.data()};
  batch.given_row = {-1, 1, 2, -1, -1};
  batch.axes = {{{0, 1, 1, 3, 4}, {0, 1, 1, 3, 4}, {0, 1, 2, 3, 4}}};
  batch.columns = 5;
  for (int i = 0; i < 15; ++i) batch.hidden.push_back(static_cast<float>(i));
  const GpuBatchLayout layout(8, 4, 1, 200, kBlocks, {},
                              {.given_width = 3, .some_rows = true, .axes = true, .grid = true});
  std::vector<std::byte> memory(static_cast<size_t>(layout.bytes()), std::byte{0x55});
  const GpuBatch out = layout.at(memory.data());
  const auto* const given = reinterpret_cast<const std::byte*>(out.given);
  EXPECT_EQ(layout.fill(memory.data(), batch, 1, {8, 0, 256, false}, kv),
            given - memory.data() + 9 * 4);
  EXPECT_EQ(std::vector<int32_t>(out.given_row, out.given_row + 8),
            (std::vector<int32_t>{-1, 1, 2, -1, -1, -1, -1, -1}));
  EXPECT_EQ(std::vector<int32_t>(out.axes[2], out.axes[2] + 8),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 0, 0}));
  EXPECT_EQ(out.grid[0], 5);
  EXPECT_EQ(out.grid[1], 1);
  EXPECT_EQ(out.given_width, 3);
  EXPECT_EQ(std::vector<float>(out.given + 3, out.given + 9),
            (std::vector<float>{3, 4, 5, 6, 7, 8}));
  batch.given_row.assign(5, -1);
  EXPECT_LE(layout.fill(memory.data(), batch, 1, {8, 0, 256, false}, kv), given - memory.data());
}

}  // namespace
}  // namespace ktx::runtime
