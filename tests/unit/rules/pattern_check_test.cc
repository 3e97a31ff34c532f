#include "lib/rules/pattern_check.h"

#include <gtest/gtest.h>

namespace ktx::rules {
namespace {

using Kind = PatternFinding::Kind;

TEST(PatternCheck, AcceptsWhatPythonReads) {
  for (const char* pattern : {"^model\\.layers\\..*\\.mlp$", "(?!self_attn)", "(?P<n>a)(?P=n)",
                              "(?:a|b)(?=c)(?<!d)(?<=e)", "[]a]", "[^]a]", "a{2,3}?",
                              "\\d+\\w\\s\\b", "[\\d.]", "(?i)a", "x{,y}"}) {
    EXPECT_TRUE(check_pattern(pattern).empty()) << pattern;
  }
}

TEST(PatternCheck, FindsWhatPythonReadsDifferently) {
  for (const char* pattern : {"[[:digit:]]", "\\h", "\\R", "\\K", "(?<n>a)", "(?R)", "(*FAIL)",
                              "a{,3}", "\\p{L}", "(?|a|b)", "\\Qa\\E"}) {
    const auto findings = check_pattern(pattern);
    ASSERT_FALSE(findings.empty()) << pattern;
    EXPECT_EQ(findings[0].kind, Kind::NotPython) << pattern;
  }
}

TEST(PatternCheck, WarnsOfDoubledEscapesAndLetterAnchors) {
  EXPECT_EQ(check_pattern("a\\\\.b").at(0).kind, Kind::DoubledEscape);
  EXPECT_EQ(check_pattern("a\\\\.b").at(0).offset, 1u);
  EXPECT_EQ(check_pattern("\\Aa\\Z").size(), 2u);
  EXPECT_EQ(check_pattern("\\Aa").at(0).kind, Kind::AnchorByLetter);
}

}  // namespace
}  // namespace ktx::rules
