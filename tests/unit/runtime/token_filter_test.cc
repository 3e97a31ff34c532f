#include "lib/runtime/sampling/token_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ktx::runtime {
namespace {

TEST(TokenFilter, OthersAreForbiddenAlsoThoseBehindTheLastWord) {
  for (const size_t tokens : {1, 31, 32, 33, 100, 128, 135}) {
    std::vector<uint32_t> bits = {0xFFFFFFFF, 0, 0x80000001, 0x00F0A001};
    std::vector<float> logits(tokens, 1.5f);
    forbid_others(bits, logits);
    for (size_t id = 0; id < tokens; ++id) {
      const bool allowed = id < 128 && (bits[id / 32] >> (id % 32) & 1) != 0;
      EXPECT_EQ(has_token(bits, static_cast<int32_t>(id)), allowed) << id;
      EXPECT_EQ(logits[id], allowed ? 1.5f : -INFINITY) << id << " of " << tokens;
    }
  }
  EXPECT_FALSE(has_token(std::vector<uint32_t>{~0u}, -1));
}

TEST(TokenFilter, AnAllowedLogitThatIsNoNumberStaysOne) {
  std::vector<float> logits(64, NAN);
  forbid_others(std::vector<uint32_t>{1, 2}, logits);
  EXPECT_TRUE(std::isnan(logits[0]));
  EXPECT_TRUE(std::isnan(logits[33]));
  EXPECT_EQ(logits[1], -INFINITY);
}

}  // namespace
}  // namespace ktx::runtime
