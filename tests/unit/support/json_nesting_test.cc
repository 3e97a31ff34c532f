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

TEST(JsonMemberPairs, CountsThePairsOfKeysOfEachObject) {
  EXPECT_EQ(json_member_pairs(""), 0u);
  EXPECT_EQ(json_member_pairs(R"({"a": 1})"), 0u);
  EXPECT_EQ(json_member_pairs(R"({"a": 1, "b": 2, "c": 3, "d": 4})"), 6u);
  EXPECT_EQ(json_member_pairs(R"({"a": {"x": 1, "y": ":::"}, "b": [{"x": 1, "y": 2}], "c": 3})"),
            3u + 1u + 1u);
}

TEST(JsonMemberPairs, LongKeysCountMoreThanOnce) {
  const std::string a(3200, 'a');
  EXPECT_GE(json_member_pairs("{\"x\": 1, \"" + a + "\": 2, \"" + a + "b\": 3}"), 3u * 100);
  EXPECT_LT(json_member_pairs("{\"x\": \"" + a + "\", \"y\": \"" + a + "\", \"z\": 3}"), 9u);
}

TEST(JsonTreeBytes, CountsWhatEachValueTakes) {
  EXPECT_EQ(json_tree_bytes(""), 0u);
  const uint64_t number = json_tree_bytes("[0,0]") - json_tree_bytes("[0]");
  const uint64_t object = json_tree_bytes("[{},{}]") - json_tree_bytes("[{}]");
  const uint64_t string = json_tree_bytes(R"(["",""])") - json_tree_bytes(R"([""])");
  const uint64_t member = json_tree_bytes(R"({"a":0,"b":0})") - json_tree_bytes(R"({"a":0})");
  EXPECT_GE(number, 16u);
  EXPECT_GE(object, number + 24);
  EXPECT_GE(string, number + 32);
  EXPECT_GE(member, string + 16);
  EXPECT_EQ(json_tree_bytes(R"(["a,{[:\",b"])"), json_tree_bytes(R"([""])"));
}

TEST(JsonMemberPairs, TakesWhatIsNoJson) {
  EXPECT_EQ(json_member_pairs("}}}]:::"), 3u);
  EXPECT_EQ(json_member_pairs("\"\\"), 0u);
}

}  // namespace
}  // namespace ktx
