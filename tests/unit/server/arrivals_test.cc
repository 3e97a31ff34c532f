#include "lib/server/http/arrivals.h"

#include <gtest/gtest.h>

#include <memory>

namespace ktx::server {
namespace {

class ArrivalsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arrival> arrive(const std::string& peer) {
    return std::make_unique<Arrival>(all_, peer, [this] { ++drops_; });
  }
  Arrivals all_{1000};
  int drops_ = 0;
};

TEST_F(ArrivalsTest, TheLongestWaitingOfTheLargestPeerGoesFirst) {
  const auto good = arrive("good"), a = arrive("bad"), b = arrive("bad");
  EXPECT_TRUE(all_.make_place());
  EXPECT_TRUE(a->dropped());
  EXPECT_FALSE(good->dropped() || b->dropped());
  // One each: now the oldest of all.
  EXPECT_TRUE(all_.make_place());
  EXPECT_TRUE(good->dropped());
  b->hand_over();
  EXPECT_FALSE(all_.make_place()) << "what is answered never goes";
  EXPECT_EQ(drops_, 2);
  b->wait();
  EXPECT_TRUE(all_.make_place());
}

TEST_F(ArrivalsTest, TheLargestBodyGivesWayToASmallerOne) {
  const auto large = arrive("a"), middle = arrive("a"), small = arrive("b");
  EXPECT_TRUE(large->hold(600));
  EXPECT_TRUE(middle->hold(400));
  EXPECT_TRUE(small->hold(50));
  EXPECT_TRUE(large->dropped());
  EXPECT_EQ(all_.bytes(), 450u);
  EXPECT_FALSE(small->hold(700)) << "the largest itself";
  EXPECT_EQ(all_.bytes(), 400u);
  EXPECT_FALSE(large->hold(1));
}

TEST_F(ArrivalsTest, BytesComeBack) {
  {
    const auto a = arrive("a");
    EXPECT_TRUE(a->hold(800));
    const uint64_t held = a->hand_over();
    EXPECT_EQ(held, 800u);
    const auto b = arrive("a");
    EXPECT_FALSE(b->hold(300)) << "a whole request is not dropped";
    all_.give_back(held);
    EXPECT_TRUE(b->hold(300));
  }
  EXPECT_EQ(all_.bytes(), 0u);
}

TEST_F(ArrivalsTest, WhoHoldsNothingIsDroppedAtTheEnd) {
  const auto idle = arrive("a"), busy = arrive("a");
  EXPECT_TRUE(busy->hold(1));
  all_.drop_idle();
  EXPECT_TRUE(idle->dropped());
  EXPECT_FALSE(busy->dropped());
}

}  // namespace
}  // namespace ktx::server
