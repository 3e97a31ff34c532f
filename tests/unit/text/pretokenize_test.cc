#include "lib/text/tokenizer/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/text/tokenizer/split_dialect.h"
#include "tests/support/cpu_time.h"
#include "tests/support/paths.h"

namespace ktx::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Splitter splitter_of(std::string_view pre) {
  return Splitter::create(find_pretokenizer(pre).take().splits).take();
}

std::vector<std::string> pieces_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  for (const Splitter::Piece& piece : splitter.split(text)) {
    pieces.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  }
  return pieces;
}

std::vector<std::string> split(std::string_view pre, std::string_view text) {
  return pieces_of(splitter_of(pre), text);
}

Splitter custom(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
  const std::vector<SplitStep> steps = {{to_pcre2(pattern).take(), behavior, invert, false}};
  return Splitter::create(steps).take();
}

TEST(Pretokenize, AgreesWithThePublishedPretokenizers) {
  std::ifstream in(source_dir() + "/tests/unit/text/splits.json");
  const auto fixture = nlohmann::json::parse(in);
  const auto texts = fixture["texts"].get<std::vector<std::string>>();
  for (const auto& [pre, rows] : fixture["pieces"].items()) {
    const Splitter splitter = splitter_of(pre);
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<size_t> lengths;
      for (const Splitter::Piece& piece : splitter.split(texts[i])) {
        lengths.push_back(piece.end - piece.begin);
      }
      EXPECT_EQ(lengths, rows[i].get<std::vector<size_t>>()) << pre << ": " << texts[i];
    }
  }
}

TEST(Pretokenize, DigitsGoByFamily) {
  EXPECT_THAT(split("gpt-2", " 12345"), ElementsAre(" 12345"));
  EXPECT_THAT(split("llama-bpe", " 12345"), ElementsAre(" ", "123", "45"));
  EXPECT_THAT(split("qwen2", "123"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(split("starcoder", " 12"), ElementsAre(" ", "1", "2"));
  EXPECT_THAT(split("falcon", "x12345"), ElementsAre("x", "123", "45"));
  EXPECT_THAT(split("deepseek-v3", "1234"), ElementsAre("123", "4"));
  EXPECT_THAT(split("tekken", "123"), ElementsAre("1", "2", "3"));
}

// Lengths of the pieces by Hugging Face tokenizers 0.23 with the patterns as they are published.
TEST(Pretokenize, DigitsInThreesAndScriptsGoByFamily) {
  const std::string texts[] = {
      "1234567 12 123456 1234abc 12345",
      "x1234y 9876543210.123456",
      "한국어 ㄱㄴ 、。！？ ㄅㄆ 漢字かな",
      "x" + std::string(700, ' ') + "y" + std::string(37, ' ') + "\n",
  };
  const std::pair<std::string_view, std::vector<std::vector<size_t>>> kWanted[] = {
      {"bloom", {{7, 3, 7, 8, 6}, {6, 11, 1, 6}, {9, 7, 7, 6, 7, 13}, {1, 699, 2, 38}}},
      {"viking",
       {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1},
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {9, 7, 7, 6, 7, 13},
        {1, 699, 2, 38}}},
      {"minicpm5",
       {{3, 3, 1, 1, 2, 1, 3, 3, 1, 3, 1, 3, 1, 3, 2},
        {1, 3, 1, 1, 1, 3, 3, 3, 1, 1, 3, 3},
        {9, 7, 13, 7, 13},
        {1, 699, 2, 38}}},
      {"jais-2",
       {{3, 3, 1, 1, 2, 1, 3, 3, 1, 3, 1, 3, 1, 3, 2},
        {1, 3, 1, 1, 1, 3, 3, 3, 1, 1, 3, 3},
        {9, 7, 13, 7, 13},
        {1, 512, 128, 32, 16, 8, 2, 1, 2, 38}}},
      {"laguna",
       {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1},
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {9, 7, 13, 7, 13},
        {1, 699, 2, 37, 1}}},
      {"youtu",
       {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1},
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {9, 1, 6, 1, 9, 3, 1, 6, 1, 12},
        {1, 699, 2, 38}}},
      {"chameleon",
       {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1},
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {9, 7, 1, 3, 3, 3, 3, 7, 13},
        {1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
         4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
         4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
         4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
         4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
         4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
         4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1, 1}}},
      {"tiny_aya",
       {{1, 3, 3, 1, 2, 1, 3, 3, 1, 3, 1, 3, 1, 2, 3},
        {1, 3, 1, 1, 1, 1, 3, 3, 3, 1, 3, 3},
        {9, 7, 13, 7, 13},
        {1, 699, 2, 38}}},
      {"superbpe",
       {{1, 3, 3, 1, 2, 1, 3, 3, 1, 1, 3, 4, 2, 3},
        {1, 1, 3, 2, 1, 3, 3, 3, 1, 3, 3},
        {49},
        {740}}},
      {"afmoe",
       {{1, 3, 3, 1, 2, 1, 3, 3, 1, 1, 3, 3, 1, 2, 3},
        {1, 1, 3, 1, 1, 1, 3, 3, 3, 1, 3, 3},
        {9, 7, 13, 7, 1, 12},
        {1, 699, 2, 38}}},
  };
  for (const auto& [pre, wanted] : kWanted) {
    const Splitter splitter = splitter_of(pre);
    for (size_t i = 0; i < std::size(texts); ++i) {
      std::vector<size_t> lengths;
      for (const Splitter::Piece& piece : splitter.split(texts[i])) {
        lengths.push_back(piece.end - piece.begin);
      }
      EXPECT_EQ(lengths, wanted[i]) << pre << ": " << texts[i];
    }
  }
}

// Each three of a long run of digits looks to its end where it is published so.
TEST(Pretokenize, LongRunsOfDigitsEndInTime) {
  const std::string digits(1 << 20, '7');
  const auto count_of = [&](std::string_view pre) {
    const double begin = testing::cpu_seconds();
    const size_t count = splitter_of(pre).split(digits).size();
    EXPECT_LT(testing::cpu_seconds() - begin, 10) << pre;
    return count;
  };
  EXPECT_EQ(count_of("tiny_aya"), (digits.size() + 2) / 3);
  EXPECT_EQ(count_of("afmoe"), (digits.size() + 2) / 3);
  EXPECT_GT(count_of("superbpe"), 100U);
}

TEST(Pretokenize, WordsGoByFamily) {
  EXPECT_THAT(split("gpt-2", "I've  it's\n"), ElementsAre("I", "'ve", " ", " it", "'s", "\n"));
  EXPECT_THAT(split("qwen2", "I'VE 12 cats\n\n x"),
              ElementsAre("I", "'VE", " ", "1", "2", " cats", "\n\n", " x"));
  EXPECT_THAT(split("tekken", "XMLHttp don't"), ElementsAre("XMLHttp", " don", "'t"));
  EXPECT_THAT(split("kimi-k2", "中文English混合 iPhone's"),
              ElementsAre("中文", "English", "混合", " i", "Phone's"));
  EXPECT_THAT(split("deepseek-coder", "a b\n  c"), ElementsAre("a", " b", "\n", " ", " c"));
  EXPECT_THAT(split("deepseek-llm", "end   "), ElementsAre("end", "   "));
}

TEST(Pretokenize, WhiteSpaceIsUnicodes) {
  // U+0085 is white space, U+180E is not any more.
  EXPECT_THAT(split("gpt-2", "a\xC2\x85\x62"), ElementsAre("a", "\xC2\x85", "b"));
  EXPECT_THAT(split("gpt-2", "a \xE1\xA0\x8E"), ElementsAre("a", " \xE1\xA0\x8E"));
}

TEST(Pretokenize, UnknownNameListsTheKnownOnes) {
  const auto unknown = find_pretokenizer("lama-bpe");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message,
              HasSubstr("unknown pre-tokenizer 'lama-bpe'; did you mean 'llama-bpe'?; known are"));
  for (const std::string& name : pretokenizer_names()) {
    const auto found = find_pretokenizer(name);
    ASSERT_TRUE(found) << name;
    EXPECT_TRUE(Splitter::create(found->splits)) << name;
  }
}

TEST(Pretokenize, BehaviorsFollowTheirNames) {
  const std::string_view text = "a--b-c";
  EXPECT_THAT(pieces_of(custom("-", SplitBehavior::Isolated), text),
              ElementsAre("a", "-", "-", "b", "-", "c"));
  EXPECT_THAT(pieces_of(custom("-", SplitBehavior::Removed), text), ElementsAre("a", "b", "c"));
  EXPECT_THAT(pieces_of(custom("-", SplitBehavior::MergedWithPrevious), text),
              ElementsAre("a-", "-", "b-", "c"));
  EXPECT_THAT(pieces_of(custom("-", SplitBehavior::MergedWithNext), text),
              ElementsAre("a", "-", "-b", "-c"));
  EXPECT_THAT(pieces_of(custom("-", SplitBehavior::Contiguous), text),
              ElementsAre("a", "--", "b", "-", "c"));
  EXPECT_THAT(pieces_of(custom("-", SplitBehavior::Removed, true), text),
              ElementsAre("-", "-", "-"));
}

TEST(Pretokenize, EmptyMatchesCutNothing) {
  EXPECT_THAT(pieces_of(custom("x*", SplitBehavior::Isolated), "axxä"),
              ElementsAre("a", "xx", "ä"));
}

TEST(Pretokenize, WrongBytesKeepTheirPlace) {
  const std::string text = "ab\xFF\xFE cd\xE4\xBD";
  std::string joined;
  for (const std::string& pre : pretokenizer_names()) {
    joined.clear();
    for (const std::string& piece : split(pre, text)) joined += piece;
    EXPECT_EQ(joined, text) << pre;
  }
  EXPECT_THAT(split("gpt-2", text), ElementsAre("ab", "\xFF\xFE", " cd", "\xE4\xBD"));
}

TEST(Pretokenize, NoPatternIsOnePiece) {
  const Splitter splitter = Splitter::create({}).take();
  EXPECT_THAT(pieces_of(splitter, "a b"), ElementsAre("a b"));
  EXPECT_TRUE(splitter.split("").empty());
}

TEST(Pretokenize, LongRunsTakeLinearTime) {
  const size_t size = 1u << 18;
  const std::string runs[] = {std::string(size, 'a'),        std::string(size, ' ') + "1",
                              std::string(size, '\n') + "x", std::string(size, 'A'),
                              std::string(size, '!'),        std::string(size, '\'')};
  for (const std::string& pre : pretokenizer_names()) {
    const Splitter splitter = splitter_of(pre);
    for (const std::string& run : runs) {
      const double begin = testing::cpu_seconds();
      const auto pieces = splitter.split(run);
      ASSERT_FALSE(pieces.empty());
      EXPECT_EQ(pieces.back().end, run.size());
      EXPECT_LT(testing::cpu_seconds() - begin, 30) << pre << " on a run of " << run[0];
    }
  }
}

// Groups take a stack frame for each turn; the text must survive without one.
TEST(Pretokenize, TextSurvivesARunawayPattern) {
  const std::string text = std::string(3u << 20, 'a') + "b";
  std::string joined;
  for (const auto& piece : pieces_of(custom("(?:a|ab|aab)*c|(a|b)+?c", SplitBehavior::Isolated),
                                     text.substr(text.size() - 5000))) {
    joined += piece;
  }
  EXPECT_EQ(joined, text.substr(text.size() - 5000));
  joined.clear();
  for (const auto& piece : pieces_of(custom("(?:(a)|(b))+", SplitBehavior::Isolated), text))
    joined += piece;
  EXPECT_EQ(joined, text);
}

TEST(SplitDialect, TranslatesWhatPcre2ReadsOtherwise) {
  EXPECT_EQ(to_pcre2(R"(\s+[^\s\S])").take(),
            R"(\p{White_Space}+[^\p{White_Space}\P{White_Space}])");
  EXPECT_EQ(to_pcre2(R"([\p{Han}\p{L}])").take(), R"([\p{sc:Han}\p{L}])");
  EXPECT_EQ(to_pcre2(R"(\u4e00$)").take(), R"(\x{4e00}(?m:$))");
  EXPECT_EQ(to_pcre2(R"([\p{Lu}\p{M}&&[^\p{Han}]])").take(),
            R"([^\p{Ll}\p{Lt}\p{Lm}\p{Lo}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])");
  EXPECT_EQ(to_pcre2("[a-z&&[^aeiou]]+").take(), "(?:(?=[^aeiou])[a-z])+");
  EXPECT_EQ(to_pcre2("[a[bc]]").take(), "[abc]");
  EXPECT_EQ(to_pcre2(R"([]\[])").take(), R"([]\[])");
  EXPECT_EQ(literal_pattern("a.b\n"), "a\\.b\\\n");
}

TEST(SplitDialect, RefusesWhatHasNoCounterpart) {
  for (const char* pattern : {"[a", "[a[^b]]", "[^a&&b]", R"(\Wx)", "\\", R"(\u12)", R"(\p{L)",
                              "[[[[[[[[[[[[a]]]]]]]]]]]]"}) {
    const auto result = to_pcre2(pattern);
    ASSERT_FALSE(result) << pattern;
    EXPECT_THAT(result.error().message, HasSubstr("is not supported"));
  }
}

}  // namespace
}  // namespace ktx::text
