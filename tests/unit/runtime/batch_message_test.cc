#include "lib/runtime/hosts/batch_message.h"

#include <gtest/gtest.h>

#include <random>

namespace ktx::runtime {
namespace {

constexpr int64_t kVocab = 100;

class BatchMessage : public ::testing::Test {
 protected:
  static KvPools pools() {
    const program::KvSlot slots[] = {
        {.layer = 0, .kv_heads = 1, .key_dim = 32, .value_dim = 32, .device = "cpu", .window = 0},
        {.layer = 1, .kv_heads = 1, .key_dim = 32, .value_dim = 32, .device = "cpu", .window = 64}};
    KvPools kv = KvPools::create(slots, plan::KvType::F16, {8, 8}).take();
    kv.set_states(StatePool(16, 6));
    return kv;
  }
  void SetUp() override {
    shape_.ctx = 256;
    shape_.max_batch = 2;
    shape_.step_tokens = 8;
    shape_.step_outputs = 2;
    ASSERT_TRUE(here_.grow(tables_[0], 130) && here_.grow(tables_[1], 3));
    here_.release_before(tables_[0], SequenceKind::Window, 1);
    batch_.tokens = 5;
    batch_.outputs = 2;
    batch_.ids = {1, 99, 3, 4, 5};
    batch_.position = {128, 129, 0, 1, 2};
    batch_.sequence = {0, 0, 1, 1, 1};
    batch_.text_end = {129, 129, 2, 2, 2};
    batch_.output_rows = {1, 4};
    for (const KvTables& tables : tables_) {
      for (const SequenceKind kind : kBlockKinds) {
        batch_.tables[kind].push_back(tables[kind].data());
      }
    }
    batch_.states.resize(2);
    batch_.states[0].in_slot = 3;
    batch_.states[0].outs = {{1, 2, nullptr, true}, {2, 4, nullptr, false}};
    batch_.states[1].outs = {{3, 5, nullptr, false}};
    MessageWriter out({MessageKind::Forward, 0, 1});
    put_batch(batch_, here_, out);
    message_ = out.take();
  }
  Status read(std::span<const std::byte> bytes) {
    MessageReader in(bytes);
    return there_batch_.read(in, shape_, kVocab, there_);
  }

  plan::RunShape shape_;
  KvPools here_ = pools(), there_ = pools();
  KvTables tables_[2];
  Batch batch_;
  MessageBytes message_;
  FollowedBatch there_batch_;
};

TEST_F(BatchMessage, BlocksAndSlotsAreFoundByNumber) {
  const Status done = read(message_);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const Batch& batch = there_batch_.batch();
  EXPECT_EQ(batch.ids, batch_.ids);
  EXPECT_EQ(batch.position, batch_.position);
  EXPECT_EQ(batch.text_end, batch_.text_end);
  EXPECT_EQ(batch.output_rows, batch_.output_rows);
  for (size_t s = 0; s < 2; ++s) {
    for (size_t b = 0; b < tables_[s].whole.size(); ++b) {
      EXPECT_EQ(there_.of(SequenceKind::Whole).block_number(batch.tables.whole[s][b]),
                here_.of(SequenceKind::Whole).block_number(tables_[s].whole[b]));
    }
  }
  EXPECT_EQ(batch.tables.window[0][0], nullptr);
  EXPECT_NE(batch.tables.window[0][1], nullptr);
  EXPECT_EQ(batch.states[0].in, there_.states().data(3));
  ASSERT_EQ(batch.states[0].outs.size(), 2u);
  EXPECT_EQ(batch.states[0].outs[1].data, there_.states().data(4));
  EXPECT_TRUE(batch.states[0].outs[0].snapshot);
  EXPECT_EQ(batch.states[1].in, nullptr);
}

TEST_F(BatchMessage, EveryTruncationIsRefused) {
  for (size_t size = 0; size < message_.size(); ++size) {
    EXPECT_FALSE(read(std::span(message_).first(size)).ok()) << size;
  }
}

// What is taken can be computed: no index leaves its table.
TEST_F(BatchMessage, DamagedMessagesAreRefusedOrSound) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    MessageBytes damaged = message_;
    damaged[sizeof(MessageHead) + random() % (damaged.size() - sizeof(MessageHead))] =
        static_cast<std::byte>(random());
    if (!read(damaged)) continue;
    const Batch& batch = there_batch_.batch();
    for (int64_t t = 0; t < batch.tokens; ++t) {
      const auto s = static_cast<size_t>(batch.sequence[t]);
      ASSERT_LT(s, batch.tables.whole.size());
      ASSERT_LT(batch.ids[t], kVocab);
      ASSERT_LE(batch.position[t], batch.text_end[t]);
      const std::byte* const block =
          batch.tables.whole[s][batch.text_end[t] / KvCache::kBlockTokens];
      const int64_t number = there_.of(SequenceKind::Whole).block_number(block);
      ASSERT_TRUE(number >= 0 && number < 8);
    }
  }
}

}  // namespace
}  // namespace ktx::runtime
