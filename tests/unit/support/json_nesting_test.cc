#include "lib/support/json_nesting.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(JsonNesting, CountsTheBracketsOpenAtOnce) {
  EXPECT_EQ(json_nesting(""), 0);
  EXPECT_EQ(json_nesting("12"), 0);
  EXPECT_EQ(json_nesting(R"({"a": [1, 2], "b": {"c": [{}]}})"), 4);
  EXPECT_EQ(json_nesting("[][][]"), 1);
}

TEST(JsonNesting, PassesOverStrings) {
  EXPECT_EQ(json_nesting(R"(["[[[{{{"])"), 1);
  EXPECT_EQ(json_nesting(R"(["a \" [[[", []])"), 2);
  EXPECT_EQ(json_nesting(R"(["\\", [[]]])"), 3);
}

TEST(JsonNesting, TakesWhatIsNoJson) {
  EXPECT_EQ(json_nesting("]]]["), 0);
  EXPECT_EQ(json_nesting(R"("[)"), 0);
  EXPECT_EQ(json_nesting("\"\\"), 0);
  EXPECT_EQ(json_nesting(std::string(100000, '[')), 100000);
}

}  // namespace
}  // namespace ktx
