#include "lib/server/filters/lark_pattern.h"

#include <gmock/gmock.h>

#include "lib/support/regex.h"
#include "lib/text/grammar/string_pattern.h"

namespace ktx::server {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::compile("\\A(?:" + pattern + ")\\z");
  EXPECT_TRUE(regex.ok()) << pattern;
  Regex::Match match;
  RegexScanner scanner(*regex);
  return scanner.next(text, 0, match) == RegexScanner::Found::Match;
}

// The grammar of Codex's apply_patch.
constexpr const char* kPatch = R"(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
)";

TEST(LarkPattern, APatchHasItsForm) {
  const auto pattern = lark_pattern(kPatch);
  ASSERT_TRUE(pattern);
  EXPECT_LT(pattern->size(), text::grammar::kMaxPatternBytes);
  const std::string begin = "*** Begin Patch\n", end = "*** End Patch";
  EXPECT_TRUE(matches(*pattern, begin + "*** Add File: a/b.txt\n+x\n+\n" + end));
  EXPECT_TRUE(matches(*pattern, begin + "*** Update File: a\n*** Move to: b\n@@ f\n-x\n+y\n z\n" +
                                    "*** Delete File: c\n" + end + "\n"));
  EXPECT_FALSE(matches(*pattern, begin + end));
  EXPECT_FALSE(matches(*pattern, begin + "*** Add File: a\nx\n" + end));
  EXPECT_FALSE(matches(*pattern, "*** Add File: a\n+x\n"));
}

TEST(LarkPattern, HasTheSignsOfLark) {
  struct Case {
    const char* grammar;
    std::vector<const char*> good, bad;
  };
  const Case kCases[] = {
      {"start: \"a.b\" [\",\"] (\"x\" | \"y\")*", {"a.b", "a.b,xyx"}, {"axb", "a.b,,"}},
      {"// one\nstart: A ~2..3   // two\n  | \"\\n\" B\nA.2: \"0\"..\"9\"\nB: A+\n",
       {"12", "123", "\n4567"},
       {"1", "1234", "\n"}},
      {"?start: v (\",\" v)*\n!v: INT | ESCAPED_STRING -> text\n%import common (INT, "
       "ESCAPED_STRING)",
       {"1,22", "\"a\\\"b\",3"},
       {"1,", "\"a\"b\""}},
      {"start: X\n%import common.WORD -> X", {"abc"}, {"a1"}},
      {"start: /a\\/b/ \"\\\"\" \"c\\\\\"", {"a/b\"c\\"}, {"a/b"}},
  };
  for (const Case& c : kCases) {
    const auto pattern = lark_pattern(c.grammar);
    ASSERT_TRUE(pattern) << c.grammar;
    for (const char* text : c.good) EXPECT_TRUE(matches(*pattern, text)) << c.grammar << text;
    for (const char* text : c.bad) EXPECT_FALSE(matches(*pattern, text)) << c.grammar << text;
  }
}

TEST(LarkPattern, IsNothingWhereItIsNoRegularExpression) {
  std::string chain = "start: r0\n", doubled = "start: r0\n";
  for (int i = 0; i < 3000; ++i)
    chain += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + "\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    doubled += "r" + std::to_string(i) + ": " + next + " " + next + "\n";
  }
  const std::string kGrammars[] = {
      "",
      "start: other",
      "start: \"(\" start? \")\"",
      "start: a\na: b\nb: a | \"x\"",
      "start: \"a\"\n%ignore \" \"",
      "start: \"a\"i",
      "start: /a/s",
      "start: sep{\"a\"}",
      "start: \"a",
      "start: (\"a\"",
      "start: \"a\")",
      "start: \"a\" ~",
      "start: /(?<=a)b/",
      "start: \"a\"\n%import common.NOTHING",
      "start \"a\"",
      "start: " + std::string(60'000, '('),
      "start: \"" + std::string(5'000, 'a') + "\"",
      chain + "r3000: \"x\"",
      doubled + "r30: \"x\"",
      std::string(100'000, 'a'),
  };
  for (const std::string& grammar : kGrammars) {
    EXPECT_FALSE(lark_pattern(grammar)) << grammar.substr(0, 60);
  }
}

}  // namespace
}  // namespace ktx::server
