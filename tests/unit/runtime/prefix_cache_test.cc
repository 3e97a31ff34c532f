#include "lib/runtime/cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "lib/runtime/sampling/random.h"

namespace ktx::runtime {
namespace {

const plan::KvSlotRecord kSlots[] = {{0, 1, 32, 32, 0, 0}};
using Table = std::vector<std::byte*>;
using Miss = PrefixHit::Miss;

class PrefixCacheTest : public ::testing::Test {
 protected:
  explicit PrefixCacheTest(int64_t blocks = 8)
      : kv_(KvCache::create(kSlots, plan::KvType::F32, blocks).take()), cache_(kv_) {
    kv_.set_reclaim([this] { return cache_.reclaim(); });
  }
  static std::vector<int32_t> text(int32_t first, int count) {
    std::vector<int32_t> ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  // A table that holds `ids`, each block marked with its first token.
  Table fill(const std::vector<int32_t>& ids) {
    Table table;
    EXPECT_TRUE(kv_.grow(table, static_cast<int64_t>(ids.size())));
    for (size_t i = 0; i < table.size(); ++i) std::memcpy(table[i], &ids[i * 64], 4);
    return table;
  }
  // Adds a text whose sequence ends.
  void keep(const std::vector<int32_t>& ids) {
    Table table = fill(ids);
    cache_.keep(table, ids, true);
    kv_.shrink(table, 0);
  }

  KvCache kv_;
  PrefixCache cache_;
};

TEST_F(PrefixCacheTest, OneOwnersTextIsNoHitForAnother) {
  const std::vector<int32_t> ids = text(0, 150);
  Table kept = fill(ids);
  cache_.keep(kept, ids, true, "alpha");
  kv_.shrink(kept, 0);
  const std::vector<int32_t> asked = text(0, 200);
  for (const char* other : {"beta", ""}) {
    Table table;
    EXPECT_EQ(cache_.find(asked, other).found, 0) << other;
    const PrefixHit hit = cache_.reuse(table, 0, asked, other);
    EXPECT_EQ(hit.tokens, 0) << other;
    EXPECT_EQ(hit.miss, Miss::New) << "nor which token differs";
    cache_.forget(ids, other);
  }
  Table table;
  EXPECT_EQ(cache_.find(asked, "alpha").found, 2);
  EXPECT_EQ(cache_.reuse(table, 0, asked, "alpha").tokens, 150);
  kv_.shrink(table, 0);
  cache_.forget(ids, "alpha");
  EXPECT_EQ(cache_.nodes(), 0);
}

TEST_F(PrefixCacheTest, SharesWholeBlocksAndCopiesTheRest) {
  const std::vector<int32_t> ids = text(0, 150);
  keep(ids);
  EXPECT_EQ(kv_.idle_blocks(), 3);
  Table table;
  std::vector<int32_t> asked = text(0, 200);
  const PrefixHit hit = cache_.reuse(table, 0, asked);
  EXPECT_EQ(hit.tokens, 150);
  EXPECT_EQ(hit.miss, Miss::New);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(kv_.users(table[0]), 2);
  EXPECT_EQ(kv_.users(table[2]), 1) << "a copy: the sequence writes behind it";
  int32_t mark = 0;
  std::memcpy(&mark, table[2], 4);
  EXPECT_EQ(mark, 128);
  EXPECT_EQ(kv_.idle_blocks(), 1) << "the tail that was copied";
  kv_.shrink(table, 0);
  EXPECT_EQ(kv_.idle_blocks(), 3);
}

TEST_F(PrefixCacheTest, LeavesTheLastTokenToBeComputed) {
  const std::vector<int32_t> ids = text(0, 128);
  keep(ids);
  Table table;
  const PrefixHit hit = cache_.reuse(table, 0, ids);
  EXPECT_EQ(hit.tokens, 127);
  EXPECT_EQ(hit.miss, Miss::None);
  kv_.shrink(table, 0);
}

TEST_F(PrefixCacheTest, TellsWhyItDidNotHit) {
  keep(text(0, 100));
  std::vector<int32_t> asked = text(0, 120);
  asked[70] = 999;
  Table table;
  const PrefixHit hit = cache_.reuse(table, 0, asked);
  EXPECT_EQ(hit.tokens, 70);
  EXPECT_EQ(hit.miss, Miss::Differs);
  EXPECT_EQ(hit.cached_id, 70);
  EXPECT_EQ(describe(hit, asked), "differs at token 70 (cached 70, asked 999)");
  kv_.shrink(table, 0);
  EXPECT_EQ(cache_.reuse(table, 0, text(5000, 10)).miss, Miss::Differs);
  PrefixCache empty(kv_);
  EXPECT_EQ(empty.reuse(table, 0, asked).miss, Miss::New);
}

TEST_F(PrefixCacheTest, GivesBackTheLongestUnusedFirst) {
  keep(text(0, 128));
  keep(text(1000, 128));
  keep(text(2000, 128));
  Table used;
  EXPECT_EQ(cache_.reuse(used, 0, text(0, 129)).tokens, 128);
  kv_.shrink(used, 0);
  // 6 of 8 blocks are kept; 4 more make room.
  Table table;
  ASSERT_TRUE(kv_.grow(table, 4 * 64));
  EXPECT_EQ(cache_.find(text(0, 129)).found, 2) << "used last";
  EXPECT_EQ(cache_.find(text(1000, 129)).found, 0);
  const PrefixHit hit = cache_.reuse(used, 0, text(1000, 129));
  EXPECT_EQ(hit.miss, Miss::Differs) << "other texts begin otherwise";
  kv_.shrink(table, 0);
  ASSERT_TRUE(kv_.grow(table, 8 * 64)) << "all idle blocks can be had";
  EXPECT_EQ(cache_.nodes(), 0);
  const PrefixHit gone = cache_.reuse(used, 0, text(2000, 129));
  EXPECT_EQ(gone.miss, Miss::Evicted);
  kv_.shrink(table, 0);
}

TEST_F(PrefixCacheTest, NeverTakesWhatASequenceUses) {
  keep(text(0, 256));
  Table used;
  ASSERT_EQ(cache_.reuse(used, 0, text(0, 257)).tokens, 256);
  Table other;
  EXPECT_FALSE(kv_.grow(other, 5 * 64));
  EXPECT_TRUE(other.empty());
  EXPECT_TRUE(kv_.grow(other, 4 * 64));
  for (size_t i = 0; i < used.size(); ++i) {
    int32_t mark = 0;
    std::memcpy(&mark, used[i], 4);
    EXPECT_EQ(mark, static_cast<int32_t>(i) * 64);
  }
  kv_.shrink(other, 0);
  kv_.shrink(used, 0);
}

TEST_F(PrefixCacheTest, HoldsEqualTextsOnce) {
  const std::vector<int32_t> ids = text(0, 130);
  Table a = fill(ids), b = fill(ids);
  EXPECT_EQ(kv_.free_blocks(), 2);
  cache_.keep(a, ids, false);
  cache_.keep(b, ids, false);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]) << "each writes on in its own";
  EXPECT_EQ(kv_.free_blocks(), 4);
  kv_.shrink(a, 0);
  kv_.shrink(b, 0);
}

TEST_F(PrefixCacheTest, WritingIntoASharedBlockCopiesIt) {
  const std::vector<int32_t> ids = text(0, 128);
  keep(ids);
  Table table;
  cache_.reuse(table, 0, text(0, 129));
  std::byte* const shared = table[1];
  kv_.shrink(table, 100);
  ASSERT_TRUE(kv_.own(table, 100));
  EXPECT_NE(table[1], shared);
  EXPECT_EQ(std::memcmp(table[1], shared, kv_.block_bytes()), 0);
  EXPECT_EQ(kv_.users(shared), 1);
  kv_.shrink(table, 0);
}

TEST_F(PrefixCacheTest, ForgetsWhatNobodyElseContinues) {
  keep(text(0, 200));
  std::vector<int32_t> fork = text(0, 190);
  for (int i = 64; i < 190; ++i) fork[i] += 5000;
  keep(fork);
  EXPECT_EQ(cache_.nodes(), 4 + 2);
  cache_.forget(text(0, 200));
  EXPECT_EQ(cache_.nodes(), 3) << "the shared first block stays";
  fork.push_back(1);  // the last token of an answer, which was never computed
  cache_.forget(fork);
  EXPECT_EQ(cache_.nodes(), 0);
  EXPECT_EQ(kv_.free_blocks(), 8);
}

TEST(PrefixCacheRandom, KeepsItsBooksInOrder) {
  const uint64_t seed = 20;
  Random random(seed);
  KvCache kv = KvCache::create(kSlots, plan::KvType::F16, 24).take();
  PrefixCache cache(kv);
  kv.set_reclaim([&] { return cache.reclaim(); });
  for (int round = 0; round < 3000; ++round) {
    // Texts over two ids fork often.
    std::vector<int32_t> ids(1 + random.next() % 400);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = i % 64 == 0 ? static_cast<int32_t>(random.next() % 2) : 7;
    }
    Table table;
    const PrefixHit hit = cache.reuse(table, 0, ids);
    ASSERT_LT(hit.tokens, static_cast<int64_t>(ids.size()));
    ASSERT_EQ(static_cast<int64_t>(table.size()), blocks_for(hit.tokens));
    for (int64_t i = 0; i < hit.tokens; i += 64) {
      // A whole block carries the mark of the text it belongs to.
      if (i + 64 > hit.tokens) break;
      ASSERT_EQ(std::memcmp(table[i / 64], &ids[i], 4), 0) << "seed " << seed;
    }
    ASSERT_TRUE(kv.own(table, hit.tokens));
    ASSERT_TRUE(kv.grow(table, static_cast<int64_t>(ids.size())));
    for (size_t i = hit.tokens / 64; i < table.size(); ++i) {
      std::memcpy(table[i], &ids[i * 64], 4);
    }
    if (random.next() % 4 != 0) cache.keep(table, ids, random.next() % 2);
    kv.shrink(table, 0);
    if (random.next() % 16 == 0) cache.forget(ids);
    ASSERT_EQ(kv.free_blocks() + kv.idle_blocks(), 24) << "nobody runs, seed " << seed;
    ASSERT_EQ(cache.nodes(), kv.idle_blocks());
  }
}

}  // namespace
}  // namespace ktx::runtime
