#include "lib/text/graphemes.h"

#include <gtest/gtest.h>

#include <vector>

namespace ktx::text {
namespace {

struct Case {
  const char* text;
  std::vector<int> columns;  // of each unit
};

TEST(Graphemes, UnitsAreWhatAPersonSees) {
  const std::vector<Case> kCases = {
      {"abc", {1, 1, 1}},
      {"é", {1}},
      {"e\u0301x", {1, 1}},
      {"q\u0323\u0307", {1}},
      {"你好", {2, 2}},
      {"한국", {2, 2}},
      {"\u1112\u1161\u11ab", {2}},  // the same syllable in
                                    // letters
      {"😀a", {2, 1}},
      {"👍🏽", {2}},
      {"👨\u200d👩\u200d👧!", {2, 1}},
      {"🇩🇪🇫🇷", {2, 2}},
      {"\xff\xfe", {1, 1}},
      {"\xe4\xbd", {1}},
      {"a\u0301\xff", {1, 1}},
      {"\t", {0}},
  };
  for (const Case& test : kCases) {
    std::string_view rest = test.text;
    std::vector<int> columns;
    while (!rest.empty()) {
      const Grapheme unit = next_grapheme(rest);
      ASSERT_GT(unit.length, 0u) << test.text;
      ASSERT_LE(unit.length, rest.size()) << test.text;
      columns.push_back(unit.columns);
      rest.remove_prefix(unit.length);
    }
    EXPECT_EQ(columns, test.columns) << test.text;
  }
}

TEST(Graphemes, InvalidBytesBecomeReplacementCharacters) {
  EXPECT_EQ(replace_invalid_utf8(""), "");
  EXPECT_EQ(replace_invalid_utf8("你好"), "你好");
  EXPECT_EQ(replace_invalid_utf8("caf\xe9!"), "caf\uFFFD!");
  EXPECT_EQ(replace_invalid_utf8("\xe4\xbd"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xff\x80z"), "\uFFFD\uFFFDz");
}

}  // namespace
}  // namespace ktx::text
