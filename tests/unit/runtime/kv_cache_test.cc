#include "lib/runtime/cache/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace ktx::runtime {
namespace {

const program::KvSlot kSlots[] = {{0, 2, 64, 64, "cpu", 0}, {1, 1, 72, 0, "cpu", 0}};

TEST(KvCache, HandsOutEveryBlockOnce) {
  KvCache cache = KvCache::create(kSlots, plan::KvType::F16, 5).take();
  EXPECT_EQ(cache.total_blocks(), 5);
  EXPECT_EQ(cache.block_bytes(), 64 * 2 * (64 + 64) * 2 + 64 * 72 * 2);
  std::vector<std::byte*> a, b;
  EXPECT_TRUE(cache.grow(a, 65));
  EXPECT_EQ(a.size(), 2u);
  EXPECT_EQ(a[1] - a[0], cache.block_bytes()) << "neighbours in a fresh pool";
  EXPECT_TRUE(cache.grow(a, 128));
  EXPECT_EQ(a.size(), 2u);
  EXPECT_TRUE(cache.grow(b, 3 * 64));
  EXPECT_EQ(cache.free_blocks(), 0);
  std::set<std::byte*> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  EXPECT_EQ(all.size(), 5u);
}

TEST(KvCache, ChangesNothingWhenFull) {
  KvCache cache = KvCache::create(kSlots, plan::KvType::F32, 2).take();
  std::vector<std::byte*> a;
  EXPECT_TRUE(cache.grow(a, 10));
  EXPECT_FALSE(cache.grow(a, 3 * 64));
  EXPECT_EQ(a.size(), 1u);
  EXPECT_EQ(cache.free_blocks(), 1);
}

TEST(KvCache, ShrinksToWhatTokensNeed) {
  KvCache cache = KvCache::create(kSlots, plan::KvType::F32, 4).take();
  std::vector<std::byte*> a;
  EXPECT_TRUE(cache.grow(a, 256));
  cache.shrink(a, 65);
  EXPECT_EQ(a.size(), 2u);
  cache.shrink(a, 1000);
  EXPECT_EQ(a.size(), 2u);
  cache.shrink(a, 0);
  EXPECT_EQ(a.size(), 0u);
  EXPECT_EQ(cache.free_blocks(), 4);
}

TEST(KvCache, GivesASlotTheTypeItCanHave) {
  const KvCache cache = KvCache::create(kSlots, plan::KvType::Q8_0, 1).take();
  EXPECT_EQ(cache.layout(0).type, kernels::KvType::Q8_0);
  EXPECT_EQ(cache.layout(1).type, kernels::KvType::F16) << "72 is no multiple of 32";
  EXPECT_EQ(cache.slot_offset(1) % 64, 0);
}

TEST(KvCache, TakesWhatThePlanSaysItTakes) {
  for (plan::KvType type : {plan::KvType::F32, plan::KvType::F16, plan::KvType::Q8_0}) {
    const KvCache cache = KvCache::create(kSlots, type, 1).take();
    EXPECT_EQ(static_cast<uint64_t>(cache.block_bytes()),
              plan::kv_block_bytes(kSlots[0], type) + plan::kv_block_bytes(kSlots[1], type));
  }
}

TEST(KvCache, RefusesAbsurdSizes) {
  EXPECT_FALSE(KvCache::create(kSlots, plan::KvType::F32, int64_t{1} << 60).ok());
  EXPECT_FALSE(KvCache::create(kSlots, plan::KvType::F32, -1).ok());
}

}  // namespace
}  // namespace ktx::runtime
