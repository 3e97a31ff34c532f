#include "lib/support/regex.h"

#include <gtest/gtest.h>

#include "tests/support/cpu_time.h"

namespace ktx {
namespace {

size_t count_matches(const Regex& regex, std::string_view text) {
  RegexScanner scanner(regex);
  Regex::Match match;
  size_t count = 0, from = 0;
  while (scanner.next(text, from, match) == RegexScanner::Found::Match) {
    ++count;
    from = match.end > from ? match.end : from + 1;
  }
  return count;
}

TEST(RegexScanner, WalksAllMatches) {
  const Regex regex = Regex::compile(R"(\p{L}+)").take();
  EXPECT_EQ(count_matches(regex, "ab 中文 ñ 1"), 3u);
  EXPECT_EQ(count_matches(regex, ""), 0u);
}

TEST(RegexScanner, SeesWhatIsBeforeFrom) {
  const Regex regex = Regex::compile("(?<=a)b").take();
  RegexScanner scanner(regex);
  Regex::Match match;
  ASSERT_EQ(scanner.next("ab", 1, match), RegexScanner::Found::Match);
  EXPECT_EQ(match.begin, 1u);
  EXPECT_EQ(scanner.next("ab", 3, match), RegexScanner::Found::None);
}

TEST(RegexScanner, LongTextsTakeLinearTime) {
  const Regex regex = Regex::compile("a").take();
  const std::string text(4u << 20, 'a');
  const double begin = testing::cpu_seconds();
  EXPECT_EQ(count_matches(regex, text), text.size());
  EXPECT_LT(testing::cpu_seconds() - begin, 30);
}

TEST(RegexScanner, DeepRecursionIsAnAnswerNotACrash) {
  const Regex regex = Regex::compile("(?:(a)|(b))+c").take();
  const std::string text(8u << 20, 'a');
  RegexScanner scanner(regex);
  Regex::Match match;
  EXPECT_NE(scanner.next(std::string_view(text).substr(0, 100'000), 0, match),
            RegexScanner::Found::Match);
  const Regex whole = Regex::compile("(?:(a)|(b))+").take();
  RegexScanner again(whole);
  EXPECT_NE(again.next(text, 0, match), RegexScanner::Found::None);
}

}  // namespace
}  // namespace ktx
