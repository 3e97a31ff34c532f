#include "lib/runtime/cache/state_pool.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

TEST(StatePool, AModelWithoutStatesHasNone) {
  EXPECT_FALSE(StatePool().has_states());
  EXPECT_FALSE(StatePool(0, 0).has_states());
  EXPECT_EQ(StatePool(0, 0).take(), kNoState);
  EXPECT_TRUE(StatePool(16, 2).has_states());
}

TEST(StatePool, SlotsOfGpusAreNumbersAlone) {
  StatePool pool(0, 2);
  EXPECT_TRUE(pool.has_states());
  const StateSlot a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.take(), kNoState);
  EXPECT_EQ(pool.data(a), nullptr);
  EXPECT_TRUE(pool.bytes(a).empty());
}

TEST(StatePool, ASlotIsFreeWhenItsLastUserIsGone) {
  StatePool pool(16, 2);
  const StateSlot a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.take(), kNoState);
  pool.share(a);
  EXPECT_EQ(pool.users(a), 2);
  pool.release(a);
  EXPECT_EQ(pool.take(), kNoState);
  pool.release(a);
  EXPECT_EQ(pool.free_slots(), 1);
  EXPECT_EQ(pool.take(), a);
}

TEST(StatePool, SlotsDoNotOverlap) {
  StatePool pool(32, 3);
  for (int i = 0; i < 3; ++i) {
    const StateSlot slot = pool.take();
    EXPECT_EQ(pool.bytes(slot).size(), 128u);
    for (int j = 0; j < 32; ++j) pool.data(slot)[j] = static_cast<float>(slot);
  }
  for (StateSlot slot = 0; slot < 3; ++slot) {
    for (int j = 0; j < 32; ++j) EXPECT_EQ(pool.data(slot)[j], static_cast<float>(slot));
  }
}

TEST(StatePool, AsksForASlotBack) {
  StatePool pool(16, 1);
  const StateSlot slot = pool.take();
  int asked = 0;
  pool.set_reclaim([&] {
    ++asked;
    if (asked == 1) return false;
    pool.release(slot);
    return true;
  });
  EXPECT_EQ(pool.take(), kNoState);
  EXPECT_EQ(pool.take(), slot);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace ktx::runtime
