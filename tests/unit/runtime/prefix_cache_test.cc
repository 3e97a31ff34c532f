#include "lib/runtime/cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "lib/runtime/sampling/random.h"

namespace ktx::runtime {
namespace {

const program::KvSlot kSlots[] = {{0, 1, 32, 32, "cpu", 0}};
using Table = KvTables;
using Miss = PrefixHit::Miss;

class PrefixCacheTest : public ::testing::Test {
 protected:
  explicit PrefixCacheTest(int64_t blocks = 8)
      : kv_(KvPools::create(kSlots, plan::KvType::F32, {static_cast<uint64_t>(blocks), 0}).take()),
        cache_(kv_) {
    whole().set_reclaim([this] { return cache_.reclaim(); });
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
    for (size_t i = 0; i < table.whole.size(); ++i) {
      std::memcpy(table.whole[i], &ids[i * 64], 4);
    }
    return table;
  }
  // Adds a text whose sequence ends.
  void keep(const std::vector<int32_t>& ids) {
    Table table = fill(ids);
    cache_.keep(table, ids, true);
    kv_.shrink(table, 0);
  }

  KvCache& whole() { return kv_.of(SequenceKind::Whole); }

  KvPools kv_;
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
  EXPECT_EQ(whole().idle_blocks(), 3);
  Table table;
  std::vector<int32_t> asked = text(0, 200);
  const PrefixHit hit = cache_.reuse(table, 0, asked);
  EXPECT_EQ(hit.tokens, 150);
  EXPECT_EQ(hit.miss, Miss::New);
  ASSERT_EQ(table.whole.size(), 3u);
  EXPECT_EQ(whole().users(table.whole[0]), 2);
  EXPECT_EQ(whole().users(table.whole[2]), 1) << "a copy: the sequence writes behind it";
  int32_t mark = 0;
  std::memcpy(&mark, table.whole[2], 4);
  EXPECT_EQ(mark, 128);
  EXPECT_EQ(whole().idle_blocks(), 1) << "the tail that was copied";
  kv_.shrink(table, 0);
  EXPECT_EQ(whole().idle_blocks(), 3);
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
  EXPECT_TRUE(other.whole.empty());
  EXPECT_TRUE(kv_.grow(other, 4 * 64));
  for (size_t i = 0; i < used.whole.size(); ++i) {
    int32_t mark = 0;
    std::memcpy(&mark, used.whole[i], 4);
    EXPECT_EQ(mark, static_cast<int32_t>(i) * 64);
  }
  kv_.shrink(other, 0);
  kv_.shrink(used, 0);
}

TEST_F(PrefixCacheTest, HoldsEqualTextsOnce) {
  const std::vector<int32_t> ids = text(0, 130);
  Table a = fill(ids), b = fill(ids);
  EXPECT_EQ(whole().free_blocks(), 2);
  cache_.keep(a, ids, false);
  cache_.keep(b, ids, false);
  EXPECT_EQ(a.whole[0], b.whole[0]);
  EXPECT_EQ(a.whole[1], b.whole[1]);
  EXPECT_NE(a.whole[2], b.whole[2]) << "each writes on in its own";
  EXPECT_EQ(whole().free_blocks(), 4);
  kv_.shrink(a, 0);
  kv_.shrink(b, 0);
}

TEST_F(PrefixCacheTest, WritingIntoASharedBlockCopiesIt) {
  const std::vector<int32_t> ids = text(0, 128);
  keep(ids);
  Table table;
  cache_.reuse(table, 0, text(0, 129));
  std::byte* const shared = table.whole[1];
  kv_.shrink(table, 100);
  ASSERT_TRUE(kv_.own(table, 100));
  EXPECT_NE(table.whole[1], shared);
  EXPECT_EQ(std::memcmp(table.whole[1], shared, whole().block_bytes()), 0);
  EXPECT_EQ(whole().users(shared), 1);
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
  EXPECT_EQ(whole().free_blocks(), 8);
}

TEST(PrefixCacheRandom, KeepsItsBooksInOrder) {
  const uint64_t seed = 20;
  Random random(seed);
  KvPools kv = KvPools::create(kSlots, plan::KvType::F16, {24, 0}).take();
  KvCache& whole = kv.of(SequenceKind::Whole);
  PrefixCache cache(kv);
  whole.set_reclaim([&] { return cache.reclaim(); });
  for (int round = 0; round < 3000; ++round) {
    // Texts over two ids fork often.
    std::vector<int32_t> ids(1 + random.next() % 400);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = i % 64 == 0 ? static_cast<int32_t>(random.next() % 2) : 7;
    }
    Table table;
    const PrefixHit hit = cache.reuse(table, 0, ids);
    ASSERT_LT(hit.tokens, static_cast<int64_t>(ids.size()));
    ASSERT_EQ(static_cast<int64_t>(table.whole.size()), blocks_for(hit.tokens));
    for (int64_t i = 0; i < hit.tokens; i += 64) {
      // A whole block carries the mark of the text it belongs to.
      if (i + 64 > hit.tokens) break;
      ASSERT_EQ(std::memcmp(table.whole[i / 64], &ids[i], 4), 0) << "seed " << seed;
    }
    ASSERT_TRUE(kv.own(table, hit.tokens));
    ASSERT_TRUE(kv.grow(table, static_cast<int64_t>(ids.size())));
    for (size_t i = hit.tokens / 64; i < table.whole.size(); ++i) {
      std::memcpy(table.whole[i], &ids[i * 64], 4);
    }
    if (random.next() % 4 != 0) cache.keep(table, ids, random.next() % 2);
    kv.shrink(table, 0);
    if (random.next() % 16 == 0) cache.forget(ids);
    ASSERT_EQ(whole.free_blocks() + whole.idle_blocks(), 24) << "nobody runs, seed " << seed;
    ASSERT_EQ(cache.nodes(), whole.idle_blocks());
  }
}

// Two slots, the second with a window of 100 tokens: a token reads up to three blocks.
const program::KvSlot kWindowSlots[] = {{0, 1, 32, 32, "cpu", 0}, {1, 1, 32, 32, "cpu", 100}};

class PrefixWindowTest : public ::testing::Test {
 protected:
  PrefixWindowTest() : kv_(KvPools::create(kWindowSlots, plan::KvType::F32, {64, 12}).take()) {
    whole().set_reclaim([this] { return cache_.reclaim(); });
    window().set_reclaim([this] { return cache_.reclaim(SequenceKind::Window); });
  }
  ~PrefixWindowTest() override {
    EXPECT_EQ(whole().free_blocks() + whole().idle_blocks(), 64);
    EXPECT_EQ(window().free_blocks() + window().idle_blocks(), 12);
  }
  static std::vector<int32_t> text(int32_t first, int count) {
    std::vector<int32_t> ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  // Computes what the tables lack of `ids`, in chunks of a block, each block marked with its token.
  void compute(KvTables& tables, int64_t from, const std::vector<int32_t>& ids) {
    const auto total = static_cast<int64_t>(ids.size());
    while (from < total) {
      ASSERT_TRUE(kv_.can_continue(tables, from)) << from;
      kv_.trim(tables, from);
      ASSERT_TRUE(kv_.own(tables, from));
      const int64_t to = std::min(total, (from / 64 + 1) * 64);
      ASSERT_TRUE(kv_.grow(tables, to)) << from;
      std::memcpy(tables.whole.back(), &ids[from / 64 * 64], 4);
      std::memcpy(tables.window.back(), &ids[from / 64 * 64], 4);
      from = to;
      cache_.keep(tables, std::span(ids).first(from), false);
    }
  }
  // Runs a text to its end; how much of it was there.
  int64_t run(const std::vector<int32_t>& ids) {
    KvTables tables;
    const PrefixHit hit = cache_.reuse(tables, 0, ids);
    check(tables, hit.tokens, ids);
    compute(tables, hit.tokens, ids);
    cache_.keep(tables, ids, true);
    kv_.shrink(tables, 0);
    return hit.tokens;
  }
  // All that the next token reads is there, and is this text's.
  void check(const KvTables& tables, int64_t length, const std::vector<int32_t>& ids) {
    EXPECT_TRUE(kv_.can_continue(tables, length));
    ASSERT_EQ(tables.window.size(), tables.whole.size());
    for (int64_t b = kv_.first_read_block(SequenceKind::Window, length); b < length / 64; ++b) {
      ASSERT_NE(tables.window[b], nullptr) << "block " << b << " of " << length;
      EXPECT_EQ(std::memcmp(tables.window[b], &ids[b * 64], 4), 0);
    }
  }
  KvCache& whole() { return kv_.of(SequenceKind::Whole); }
  KvCache& window() { return kv_.of(SequenceKind::Window); }

  KvPools kv_;
  PrefixCache cache_{kv_};
};

TEST_F(PrefixWindowTest, ALongTextTakesNoMoreThanItsWindow) {
  EXPECT_EQ(run(text(0, 30 * 64)), 0) << "30 blocks through a pool of 12";
}

TEST_F(PrefixWindowTest, ATextGoesOnFromItsEnd) {
  std::vector<int32_t> ids = text(0, 20 * 64 + 10);
  run(ids);
  for (int32_t id = 0; id < 100; ++id) ids.push_back(5000 + id);
  EXPECT_EQ(run(ids), 20 * 64 + 10);
}

TEST_F(PrefixWindowTest, GoesOnOnlyWhereTheWindowIs) {
  run(text(0, 20 * 64));
  std::vector<int32_t> fork = text(0, 5 * 64);
  for (int32_t id = 0; id < 100; ++id) fork.push_back(5000 + id);
  KvTables tables;
  const PrefixHit hit = cache_.reuse(tables, 0, fork);
  EXPECT_EQ(hit.tokens, 0) << "the blocks before the fork went long ago";
  EXPECT_EQ(hit.miss, Miss::Evicted);
  EXPECT_EQ(cache_.find(fork).found, 0);
}

TEST_F(PrefixWindowTest, WhereTextsPartIsKept) {
  const std::vector<int32_t> system = text(0, 6 * 64);
  const auto with = [&](int32_t first, int count) {
    std::vector<int32_t> ids = system;
    for (int32_t id = 0; id < count; ++id) ids.push_back(first + id);
    return ids;
  };
  run(with(10000, 15 * 64));
  EXPECT_EQ(run(with(20000, 15 * 64)), 0) << "the first text's windows have gone";
  EXPECT_EQ(run(with(30000, 15 * 64)), 6 * 64) << "the second text showed where texts part";
  EXPECT_EQ(run(with(40000, 15 * 64)), 6 * 64);
}

TEST_F(PrefixWindowTest, KeepsItsBooksInOrder) {
  const uint64_t seed = 21;
  Random random(seed);
  for (int round = 0; round < 1500; ++round) {
    std::vector<int32_t> ids(1 + random.next() % 1000);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = i % 64 == 0 ? static_cast<int32_t>(random.next() % 2) : 7;
    }
    ASSERT_LT(run(ids), static_cast<int64_t>(ids.size())) << "seed " << seed;
    if (random.next() % 16 == 0) cache_.forget(ids);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    ASSERT_EQ(whole().free_blocks() + whole().idle_blocks(), 64);
    ASSERT_EQ(window().free_blocks() + window().idle_blocks(), 12);
    ASSERT_EQ(cache_.nodes(), whole().idle_blocks());
  }
}

// Texts with states: a slot holds the number of tokens that are behind it, and their sum.
class PrefixStateTest : public ::testing::Test {
 protected:
  explicit PrefixStateTest(int64_t slots = 8, uint64_t blocks = 256)
      : blocks_(static_cast<int64_t>(blocks)),
        slots_(slots),
        kv_(KvPools::create(kSlots, plan::KvType::F32, {blocks, 0}).take()) {
    kv_.set_states(StatePool(16, slots));
    kv_.of(SequenceKind::Whole).set_reclaim([this] { return cache_.reclaim(); });
    kv_.states().set_reclaim([this] { return cache_.reclaim(SequenceKind::State); });
  }
  ~PrefixStateTest() override {
    EXPECT_EQ(kv_.of(SequenceKind::Whole).free_blocks() + kv_.of(SequenceKind::Whole).idle_blocks(),
              blocks_);
    EXPECT_EQ(kv_.states().free_slots() + cache_.snapshots(), slots_);
  }
  static std::vector<int32_t> text(int32_t first, int count) {
    std::vector<int32_t> ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  static float sum(std::span<const int32_t> ids) {
    return static_cast<float>(std::accumulate(ids.begin(), ids.end(), int64_t{0}) % 65536);
  }
  // As a pass would: the tables go on to `to` tokens.
  void pass(KvTables& tables, const std::vector<int32_t>& ids, int64_t to, bool snapshot) {
    const auto taken = [&] {
      const StateSlot slot = kv_.states().take();
      EXPECT_NE(slot, kNoState);
      kv_.states().data(slot)[0] = static_cast<float>(to);
      kv_.states().data(slot)[1] = sum(std::span(ids).first(static_cast<size_t>(to)));
      return slot;
    };
    const int64_t from = tables.states.empty() ? 0 : tables.states.back().position;
    ASSERT_TRUE(kv_.own(tables, from));
    ASSERT_TRUE(kv_.grow(tables, to));
    for (int64_t b = from / 64; b < static_cast<int64_t>(tables.whole.size()); ++b) {
      std::memcpy(tables.whole[b], &ids[b * 64], 4);
    }
    tables.states.push_back({to, taken(), snapshot});
  }
  // Runs a text with snapshots at `places`, and keeps it; how much of it was there.
  PrefixHit run(const std::vector<int32_t>& ids, std::vector<int64_t> places = {}) {
    KvTables tables;
    const PrefixHit hit = cache_.reuse(tables, 0, ids);
    check(tables, hit.tokens, ids);
    for (const int64_t place : places) {
      if (place > hit.tokens) pass(tables, ids, place, true);
    }
    pass(tables, ids, static_cast<int64_t>(ids.size()), false);
    cache_.keep(tables, ids, true);
    kv_.shrink(tables, 0);
    return hit;
  }
  // What a text goes on from is its own.
  void check(const KvTables& tables, int64_t length, const std::vector<int32_t>& ids) {
    ASSERT_EQ(static_cast<int64_t>(tables.whole.size()), blocks_for(length));
    for (int64_t b = 0; b < blocks_for(length); ++b) {
      EXPECT_EQ(std::memcmp(tables.whole[b], &ids[b * 64], 4), 0);
    }
    ASSERT_EQ(tables.states.size(), length > 0 ? 1u : 0u);
    if (length == 0) return;
    EXPECT_EQ(tables.states[0].position, length);
    const float* const state = kv_.states().data(tables.states[0].slot);
    EXPECT_EQ(state[0], static_cast<float>(length));
    EXPECT_EQ(state[1], sum(std::span(ids).first(static_cast<size_t>(length))));
  }

  const int64_t blocks_, slots_;
  KvPools kv_;
  PrefixCache cache_{kv_};
};

std::vector<int32_t> longer(std::vector<int32_t> ids, int32_t first, int count) {
  for (int32_t id = 0; id < count; ++id) ids.push_back(first + id);
  return ids;
}

TEST_F(PrefixStateTest, ATextGoesOnFromItsEnd) {
  const std::vector<int32_t> ids = text(0, 150);
  EXPECT_EQ(run(ids).tokens, 0);
  EXPECT_EQ(run(longer(ids, 5000, 60)).tokens, 150);
  EXPECT_EQ(run(longer(longer(ids, 5000, 60), 6000, 300)).tokens, 210);
}

TEST_F(PrefixStateTest, AndOtherwiseFromTheLastSnapshotBefore) {
  const std::vector<int32_t> ids = text(0, 300);
  run(ids, {100, 128, 230});
  EXPECT_EQ(cache_.snapshots(), 4);
  const auto fork = [&](int at) { return longer(text(0, at), 9000, 100); };
  EXPECT_EQ(run(fork(250)).tokens, 230);
  EXPECT_EQ(run(fork(229)).tokens, 128);
  EXPECT_EQ(run(fork(128)).tokens, 128);
  EXPECT_EQ(run(fork(127)).tokens, 100);
  const PrefixHit none = run(fork(99));
  EXPECT_EQ(none.tokens, 0);
  EXPECT_EQ(none.same, 99);
  EXPECT_EQ(none.miss, Miss::NoState);
  EXPECT_EQ(describe(none, {}), "no states behind token 0, though 99 tokens are cached");
}

TEST_F(PrefixStateTest, TheSameTextIsComputedFromItsLastSnapshot) {
  const std::vector<int32_t> ids = text(0, 128);
  run(ids, {125});
  EXPECT_EQ(run(ids).tokens, 125) << "its last token is wanted";
}

TEST_F(PrefixStateTest, ASequenceTakesWhatIsFurtherThanItself) {
  const std::vector<int32_t> ids = text(0, 300);
  KvTables tables;
  pass(tables, ids, 70, false);
  run(ids, {200});
  const PrefixHit hit = cache_.reuse(tables, 70, ids);
  EXPECT_EQ(hit.tokens, 200);
  check(tables, 200, ids);
  EXPECT_EQ(cache_.reuse(tables, 200, ids).tokens, 200);
  kv_.shrink(tables, 0);
}

TEST_F(PrefixStateTest, MarksInABlockThatIsNotFullWaitForIt) {
  const std::vector<int32_t> ids = text(0, 200);
  KvTables tables;
  pass(tables, ids, 90, true);
  pass(tables, ids, 100, false);
  cache_.keep(tables, std::span(ids).first(100), false);
  EXPECT_EQ(cache_.snapshots(), 0);
  pass(tables, ids, 130, false);
  cache_.keep(tables, std::span(ids).first(130), false);
  EXPECT_EQ(cache_.snapshots(), 1);
  EXPECT_EQ(tables.states.back().position, 130) << "and the sequence goes on";
  kv_.shrink(tables, 0);
  EXPECT_EQ(run(longer(text(0, 95), 7000, 50)).tokens, 90);
}

TEST_F(PrefixStateTest, ASequenceIsTakenBackToItsPlaces) {
  const std::vector<int32_t> ids = text(0, 200);
  KvTables tables;
  pass(tables, ids, 90, true);
  pass(tables, ids, 150, false);
  EXPECT_EQ(kv_.last_place(tables, 150), 150);
  EXPECT_EQ(kv_.last_place(tables, 149), 90);
  EXPECT_EQ(kv_.last_place(tables, 89), 0);
  kv_.shrink(tables, 90);
  EXPECT_EQ(tables.states.size(), 1u);
  kv_.shrink(tables, 0);
  EXPECT_EQ(kv_.states().free_slots(), slots_);
}

TEST_F(PrefixStateTest, BlocksWithoutStatesBehindThemGoFirst) {
  run(text(0, 128 * 64));
  run(text(20000, 64 * 64), {61 * 64});
  EXPECT_EQ(cache_.snapshots(), 3);
  ASSERT_TRUE(cache_.reclaim(SequenceKind::State)) << "the second text's end, which saves little";
  KvTables tables;
  ASSERT_TRUE(kv_.grow(tables, (256 - 128 - 61) * 64));
  EXPECT_EQ(cache_.find(longer(text(0, 128 * 64), 1, 1)).found, 128) << "though it is older";
  EXPECT_EQ(cache_.find(text(20000, 64 * 64)).found, 61);
  kv_.shrink(tables, 0);
}

// Conversations in turn, more snapshots than slots: what goes saves little, a few short turns.
TEST_F(PrefixStateTest, EndsOfConversationsOutlastWhatIsBeforeThem) {
  std::vector<std::vector<int32_t>> texts;
  for (int32_t c = 0; c < 5; ++c) texts.push_back(text(10000 * c, 100));
  for (int32_t turn = 0; turn < 12; ++turn) {
    for (size_t c = 0; c < texts.size(); ++c) {
      const auto before = static_cast<int64_t>(texts[c].size());
      texts[c] = longer(texts[c], 1000 + 20 * turn, 20);
      const int64_t prompt = before + 8;
      const PrefixHit hit = run(texts[c], {prompt});
      EXPECT_GE(hit.tokens, turn > 0 ? before - 80 : 0) << "turn " << turn << " of " << c;
    }
  }
}

TEST_F(PrefixStateTest, SnapshotsOfALongTextAreSpreadOverIt) {
  const std::vector<int32_t> ids = text(0, 100 * 64);
  KvTables tables;
  for (int64_t at = 64; at <= 100 * 64; at += 64) {
    pass(tables, ids, at, true);
    cache_.keep(tables, std::span(ids).first(static_cast<size_t>(at)), false);
    while (tables.states.size() > 1) {
      kv_.states().release(tables.states.front().slot);
      tables.states.erase(tables.states.begin());
    }
  }
  kv_.shrink(tables, 0);
  int64_t worst = 0, before = 0;
  for (int at = 10 * 64; at < 100 * 64; at += 10 * 64) {
    KvTables probe;
    const int64_t found = cache_.reuse(probe, 0, longer(text(0, at), 90000, 10)).tokens;
    kv_.shrink(probe, 0);
    worst = std::max(worst, at - found);
    before = std::max(before, found);
  }
  EXPECT_GT(before, 50 * 64);
  EXPECT_LT(worst, 60 * 64);
}

TEST_F(PrefixStateTest, KeepsItsBooksInOrder) {
  const uint64_t seed = 22;
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(2 + random.next() % 600);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = i % 50 == 0 ? static_cast<int32_t>(random.next() % 2) : 7;
    }
    std::vector<int64_t> places;
    for (int i = 0; i < 2; ++i) {
      const int64_t place = 1 + static_cast<int64_t>(random.next() % (ids.size() - 1));
      if (places.empty() || place > places.back()) places.push_back(place);
    }
    run(ids, places);
    if (random.next() % 16 == 0) cache_.forget(ids);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << " round " << round;
  }
}

}  // namespace
}  // namespace ktx::runtime
