#include "lib/runtime/scheduler/key_quota.h"

#include <gtest/gtest.h>

#include <string>

namespace ktx::runtime {
namespace {

TEST(KeyQuota, OneKeyMayHaveAllAndAnotherItsPartBeyond) {
  KeyQuota quota(12);
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(quota.take("a"));
  EXPECT_FALSE(quota.take("a"));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(quota.take("b")) << i;
  EXPECT_FALSE(quota.take("b")) << "half of it, of two keys";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(quota.take("c")) << i;
  EXPECT_FALSE(quota.take("c"));
  EXPECT_EQ(quota.taken(), 22);
  // What others give back is for those below the limit of all.
  for (int i = 0; i < 11; ++i) quota.give_back("a");
  EXPECT_TRUE(quota.take("b"));
  EXPECT_FALSE(quota.take("b"));
}

TEST(KeyQuota, AmountsAreTakenAsAWhole) {
  KeyQuota quota(100);
  EXPECT_FALSE(quota.take("a", 101));
  EXPECT_TRUE(quota.take("a", 60));
  EXPECT_FALSE(quota.take("a", 41));
  EXPECT_TRUE(quota.take("a", 40));
  EXPECT_FALSE(quota.take("b", 51));
  EXPECT_TRUE(quota.take("b", 50));
  EXPECT_TRUE(quota.take("c", 0));
  quota.give_back("a", 100);
  quota.give_back("b", 50);
  EXPECT_EQ(quota.taken(), 0);
  EXPECT_FALSE(quota.take("b", INT64_MAX)) << "no number is too large";
}

TEST(KeyQuota, WhatIsHeldComesBackWithItsLastCopy) {
  KeyQuota quota(3);
  std::shared_ptr<void> held = quota.hold("a", 2);
  ASSERT_TRUE(held);
  EXPECT_FALSE(quota.hold("a", 2));
  std::shared_ptr<void> copy = held;
  held.reset();
  EXPECT_EQ(quota.taken(), 2);
  copy.reset();
  EXPECT_EQ(quota.taken(), 0);
}

}  // namespace
}  // namespace ktx::runtime
