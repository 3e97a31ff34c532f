#include "lib/server/key_limits.h"

#include <gtest/gtest.h>

namespace ktx::server {
namespace {

using std::chrono::seconds;

const KeyLimits::Clock::time_point kBegin = KeyLimits::Clock::time_point() + seconds(1000);

ApiKey limited(int64_t requests, int64_t tokens) {
  ApiKey key("secret");
  key.requests_per_minute = requests;
  key.tokens_per_minute = tokens;
  return key;
}

TEST(KeyLimits, RequestsComeBackEvenly) {
  KeyLimits limits;
  const ApiKey key = limited(3, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limits.take_request("a", key, kBegin), 0);
  EXPECT_EQ(limits.take_request("a", key, kBegin), 20) << "one each 20 seconds";
  EXPECT_EQ(limits.take_request("b", key, kBegin), 0) << "each key has its own";
  EXPECT_EQ(limits.take_request("a", key, kBegin + seconds(15)), 5);
  EXPECT_EQ(limits.take_request("a", key, kBegin + seconds(21)), 0);
  EXPECT_GT(limits.take_request("a", key, kBegin + seconds(21)), 0);
  // No more than a minute's share is saved up.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limits.take_request("a", key, kBegin + seconds(9000)), 0);
  EXPECT_GT(limits.take_request("a", key, kBegin + seconds(9000)), 0);
}

TEST(KeyLimits, TokensThatWereTooManyAreWaitedFor) {
  KeyLimits limits;
  const ApiKey key = limited(0, 600);
  EXPECT_EQ(limits.take_request("a", key, kBegin), 0);
  limits.add_tokens("a", 700);
  EXPECT_EQ(limits.take_request("a", key, kBegin), 11) << "10 tokens a second: 100, and one";
  EXPECT_EQ(limits.take_request("a", key, kBegin + seconds(11)), 0);
  limits.add_tokens("a", int64_t{1} << 50);
  EXPECT_EQ(limits.take_request("a", key, kBegin + seconds(12)), 86400) << "a day at most";
}

TEST(KeyLimits, TokensMayBeTakenBefore) {
  KeyLimits limits;
  const ApiKey key = limited(0, 60);
  EXPECT_EQ(limits.take_request("a", key, kBegin), 0);
  EXPECT_EQ(limits.take_tokens("a", key, 50, kBegin), 0);
  EXPECT_EQ(limits.take_tokens("a", key, 50, kBegin), 0) << "the last one may go beyond";
  EXPECT_EQ(limits.take_tokens("a", key, 1, kBegin), 41) << "one a second: 40, and one";
  EXPECT_EQ(limits.take_request("a", key, kBegin), 41);
  EXPECT_EQ(limits.take_tokens("a", key, 1, kBegin + seconds(41)), 0);
  EXPECT_EQ(limits.take_tokens("b", limited(5, 0), 1 << 20, kBegin), 0) << "no limit of tokens";
}

TEST(KeyLimits, WithoutLimitsNothingIsCounted) {
  KeyLimits limits;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limits.take_request("a", limited(0, 0), kBegin), 0);
}

}  // namespace
}  // namespace ktx::server
