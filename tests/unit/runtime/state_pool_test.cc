#include "lib/runtime/cache/state_pool.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

// A pass over a text of `length` tokens that leaves `mark` in the states.
void pass(StatePool& pool, SequenceStates& states, int64_t length, float mark) {
  ASSERT_TRUE(pool.prepare(states));
  states.next[0] = mark;
  pool.advance(states, length);
}

TEST(StatePool, AModelWithoutStatesHasNone) {
  EXPECT_FALSE(StatePool().has_states());
  EXPECT_TRUE(StatePool(16, 2).has_states());
}

TEST(StatePool, OnePassCanBeTakenBack) {
  StatePool pool(16, 4);
  SequenceStates states;
  pass(pool, states, 0, 1);
  pass(pool, states, 5, 2);
  EXPECT_EQ(states.now[0], 2);
  EXPECT_TRUE(pool.truncate(states, 6, 6)) << "nothing goes";
  EXPECT_TRUE(pool.truncate(states, 6, 5));
  EXPECT_EQ(states.now[0], 1);
  EXPECT_FALSE(pool.truncate(states, 5, 4)) << "only one";
  EXPECT_EQ(states.now, nullptr);
}

TEST(StatePool, APassThatFailedLeavesTheStates) {
  StatePool pool(16, 4);
  SequenceStates states;
  pass(pool, states, 0, 1);
  pass(pool, states, 5, 2);
  ASSERT_TRUE(pool.prepare(states));
  states.next[0] = 3;  // and it fails
  EXPECT_EQ(states.now[0], 2);
  EXPECT_TRUE(pool.truncate(states, 6, 6));
  EXPECT_FALSE(pool.truncate(states, 6, 5)) << "what was before has been written over";
}

TEST(StatePool, ATextOfNoTokensHasNoStatesToGoBackTo) {
  StatePool pool(16, 4);
  SequenceStates states;
  pass(pool, states, 0, 1);
  EXPECT_TRUE(pool.truncate(states, 5, 0));
  EXPECT_EQ(states.now, nullptr);
  EXPECT_EQ(states.next, nullptr);
}

TEST(StatePool, BuffersAreUsedAgain) {
  StatePool pool(16, 1);
  SequenceStates states;
  pass(pool, states, 0, 1);
  const float* const first = states.now.get();
  pool.release(states);
  EXPECT_EQ(pool.take().get(), first);
}

}  // namespace
}  // namespace ktx::runtime
