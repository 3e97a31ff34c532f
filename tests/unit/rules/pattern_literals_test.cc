#include "lib/rules/pattern_literals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lib/support/regex.h"

namespace ktx::rules {
namespace {

using Sets = std::vector<LiteralSet>;

TEST(PatternLiterals, AnAlternationIsASetAndARepetitionEndsOne) {
  EXPECT_EQ(required_literals("^model\\.layers\\.(3|4)\\.mlp\\..*\\.(up|down)_proj$"),
            (Sets{{"model.layers.3.mlp.", "model.layers.4.mlp."}, {".down_proj", ".up_proj"}}));
  EXPECT_EQ(required_literals("lm_head"), (Sets{{"lm_head"}}));
  EXPECT_EQ(required_literals("ab+cd"), (Sets{{"cd"}}));
}

TEST(PatternLiterals, SetsOfCharactersAndCountsAreMultipliedOut) {
  EXPECT_EQ(required_literals("layers\\.([45]|1[01])\\."),
            (Sets{{"layers.10.", "layers.11.", "layers.4.", "layers.5."}}));
  EXPECT_EQ(required_literals("xa{2}y"), (Sets{{"xaay"}}));
  EXPECT_EQ(required_literals("ab?c"), (Sets{{"ac", "abc"}}));
}

TEST(PatternLiterals, LookAroundAndAnchorsHaveNoWidth) {
  EXPECT_EQ(required_literals("^model\\.(?!layers\\.3)la\\b"), (Sets{{"model.la"}}));
  EXPECT_EQ(required_literals("(?<=mlp\\.)experts$"), (Sets{{"experts"}}));
}

TEST(PatternLiterals, NothingIsSaidOfWhatIsNotUnderstood) {
  for (const char* pattern :
       {"", ".*", "(?i)model", "a|", "(lm_head)?", "(ab)\\1", "model\\x2e", "[[:alpha:]]ab",
        "mod\xC3\xA9l", "(?P<n>ab)(?P=n)", "\\bx", "(lm_head){0,3}", "\\Qab\\E", "(*UCP)ab"}) {
    EXPECT_TRUE(required_literals(pattern).empty()) << pattern;
  }
}

// Sets must not grow with the product of what a pattern allows.
TEST(PatternLiterals, HostilePatternsStaySmall) {
  std::string classes;
  std::string deep(2000, '(');
  for (int i = 0; i < 400; ++i) classes += "[0-9][a-f](foo|bar|baz)";
  deep += "ab" + std::string(2000, ')');
  size_t bytes = 0;
  for (const LiteralSet& set : required_literals(classes)) {
    for (const std::string& text : set) bytes += text.size();
  }
  EXPECT_LT(bytes, 200'000u);
  EXPECT_TRUE(required_literals(deep).empty());
}

// Patterns over few letters, so that random subjects match often.
class Patterns {
 public:
  explicit Patterns(uint32_t seed) : random_(seed) {}

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  std::string sequence(int depth) {
    std::string text;
    for (int i = below(4) + 1; i > 0; --i) text += repeated(depth);
    return text;
  }

  std::string subject() {
    std::string text;
    for (int i = below(14); i > 0; --i) text += "ab1."[below(4)];
    return text;
  }

 private:
  std::string repeated(int depth) {
    static const char* const kCounts[] = {"",      "",      "",     "",   "*",  "+",  "?",  "{2}",
                                          "{1,2}", "{0,1}", "{2,}", "*?", "+?", "??", "?+", "{0}"};
    const std::string what = atom(depth);
    const bool plain = what == "^" || what == "$" || what == "\\b";
    return plain ? what : what + kCounts[below(16)];
  }

  std::string atom(int depth) {
    static const char* const kAtoms[] = {"a",     "b",   "1",     "\\.", ".",      "[ab]",
                                         "[^ab]", "\\d", "[0-9]", "\\w", "[a\\.]", "[]a]",
                                         "^",     "$",   "\\b",   "ab",  "b1",     "[a\\d-]"};
    static const char* const kOpen[] = {"(", "(?:", "(?P<n>", "(?=", "(?!", "(?<!"};
    if (depth == 0 || below(3) > 0) return kAtoms[below(18)];
    const int kind = below(6);
    if (kind == 5) return "(?<!a)";  // look-behind needs a fixed length
    std::string text = kOpen[kind] + sequence(depth - 1);
    for (int i = below(3); i > 0; --i) text += "|" + (below(6) ? sequence(depth - 1) : "");
    return text + ")";
  }

  std::mt19937 random_;
};

TEST(PatternLiterals, EveryMatchHasAStringOfEachSet) {
  constexpr uint32_t kSeed = 20261121;
  Patterns patterns(kSeed);
  int with_sets = 0;
  int matches = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string pattern = patterns.sequence(3);
    const Result<Regex> regex = Regex::compile(pattern);
    if (!regex) continue;
    const Sets sets = required_literals(pattern);
    with_sets += sets.empty() ? 0 : 1;
    for (int k = 0; k < 30 && !sets.empty(); ++k) {
      const std::string subject = patterns.subject();
      if (!regex->matches(subject)) continue;
      ++matches;
      for (const LiteralSet& set : sets) {
        const bool any = std::any_of(set.begin(), set.end(), [&](const std::string& text) {
          return subject.find(text) != std::string::npos;
        });
        ASSERT_TRUE(any) << pattern << " matches " << subject << ", seed " << kSeed;
      }
    }
  }
  EXPECT_GT(with_sets, 500);
  EXPECT_GT(matches, 2000);
}

}  // namespace
}  // namespace ktx::rules
