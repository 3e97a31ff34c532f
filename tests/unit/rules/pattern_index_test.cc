#include "lib/rules/pattern_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "lib/support/regex.h"

namespace ktx::rules {
namespace {

bool nowhere(uint32_t) {
  return false;
}

PatternIndex index_of(const std::vector<std::string>& patterns,
                      const std::vector<std::string>& paths) {
  const std::vector<std::string_view> views(patterns.begin(), patterns.end());
  PatternIndex index(views);
  for (const std::string& path : paths) index.count(path);
  return index;
}

std::vector<uint32_t> all(std::optional<std::span<const uint32_t>> found) {
  return found ? std::vector<uint32_t>(found->begin(), found->end()) : std::vector<uint32_t>{999};
}

TEST(PatternIndex, APatternHangsOnItsRarestLiterals) {
  const std::vector<std::string> paths = {"m.l.1.up", "m.l.2.up", "m.l.3.up", "m.l.17.up",
                                          "m.l.17.down"};
  PatternIndex index = index_of({"^m\\.l\\..*\\.down$", "\\.17\\.", ".*", "m\\.l"}, paths);
  index.choose(nowhere);
  EXPECT_EQ(index.always(), (std::vector<uint32_t>{1, 2, 3})) << "1 is in two of five paths";
  EXPECT_EQ(all(index.candidates("m.l.17.down")), (std::vector<uint32_t>{0}));
  EXPECT_EQ(all(index.candidates("m.l.1.up")), (std::vector<uint32_t>{}));
}

TEST(PatternIndex, PatternsNamedSoAreTriedEverywhere) {
  PatternIndex index = index_of({"abc", "xyz"}, {"q"});
  index.choose([](uint32_t pattern) { return pattern == 1; });
  EXPECT_EQ(index.always(), (std::vector<uint32_t>{1}));
}

TEST(PatternIndex, PathsThatAreNotAsciiAreRefused) {
  PatternIndex index = index_of({"a\\d"}, {});
  index.choose(nowhere);
  EXPECT_TRUE(index.candidates("a1").has_value());
  EXPECT_FALSE(index.candidates("a\xD9\xA1").has_value()) << "\\d means any digit of Unicode";
}

// Literals within, behind and across each other.
TEST(PatternIndex, NoPatternThatMatchesIsLeftOut) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const auto word = [&](size_t longest) {
    std::string text;
    for (size_t i = below(longest) + 1; i > 0; --i) text += "ab.1"[below(4)];
    return text;
  };
  std::vector<std::string> patterns;
  std::vector<Regex> regexes;
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (const char c : word(6))
      text += c == '.' ? std::string(below(3) ? "\\." : ".*") : std::string(1, c);
    if (below(3) == 0) text += "(aa|b1|" + std::string(1, "ab1"[below(3)]) + ")";
    patterns.push_back(text);
    regexes.push_back(Regex::compile(text).take());
  }
  std::vector<std::string> paths;
  for (int i = 0; i < 300; ++i) paths.push_back(word(16));
  PatternIndex index = index_of(patterns, paths);
  index.choose(nowhere);
  ASSERT_LT(index.always().size(), patterns.size());
  int found = 0;
  for (const std::string& path : paths) {
    const std::vector<uint32_t> candidates = all(index.candidates(path));
    ASSERT_TRUE(std::is_sorted(candidates.begin(), candidates.end()));
    for (uint32_t i = 0; i < patterns.size(); ++i) {
      if (!regexes[i].matches(path)) continue;
      const bool always = std::count(index.always().begin(), index.always().end(), i) > 0;
      const bool named = std::count(candidates.begin(), candidates.end(), i) == 1;
      EXPECT_TRUE(always != named) << patterns[i] << " on " << path << ", seed " << kSeed;
      found += named ? 1 : 0;
    }
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace ktx::rules
