#include "lib/text/tokenizer/character_map.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/character_table.h"

namespace ktx::text {
namespace {

using ktx::testing::character_table;

// A few lines of SentencePiece's nmt_nfkc.
std::string table() {
  return character_table({{"\n", " "},
                          {"\x01", ""},
                          {"\u200b", " "},
                          {"ｔ", "t"},
                          {"ﬁ", "fi"},
                          {"e\u0301", "é"},
                          {"e\u0301\u0323", "ẹ\u0301"},
                          {"ﷺ", "صلى الله عليه وسلم"}});
}

TEST(CharacterMap, ReplacesTheLongestBeginnings) {
  const std::string bytes = table();
  const auto map = CharacterMap::create(bytes);
  ASSERT_TRUE(map.ok()) << map.error().message;
  EXPECT_EQ(map->apply("a\nb\u200bc\x01"
                       "d"),
            "a b cd");
  EXPECT_EQ(map->apply("ﬁｔ"), "fit");
  EXPECT_EQ(map->apply("e e\u0301 e\u0301\u0323x e\u0323"), "e é ẹ\u0301x e\u0323");
  EXPECT_EQ(map->apply("ﷺ"), "صلى الله عليه وسلم");
  EXPECT_EQ(map->apply(""), "");
  EXPECT_EQ(map->apply("中文 🦙"), "中文 🦙") << "what no entry begins stays";
}

TEST(CharacterMap, WrongUtf8BecomesTheReplacementCharacterByteByByte) {
  const std::string bytes = table();
  const auto map = CharacterMap::create(bytes);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->apply("a\xE2\x80"
                       "b\xFF"),
            "a\uFFFD\uFFFDb\uFFFD");
}

TEST(CharacterMap, WithoutATableTextsStayAsTheyAre) {
  const auto map = CharacterMap::create("");
  ASSERT_TRUE(map.ok());
  EXPECT_TRUE(map->empty());
  EXPECT_EQ(map->apply("a\n\xFF"), "a\n\xFF");
}

TEST(CharacterMap, RefusesTablesWhoseSizesAreWrong) {
  const std::string bytes = table();
  EXPECT_FALSE(CharacterMap::create("abc").ok());
  EXPECT_FALSE(CharacterMap::create(std::string(4, '\0')).ok()) << "no trie";
  EXPECT_FALSE(CharacterMap::create(std::string(64, '\xFF')).ok()) << "a trie beyond the end";
  EXPECT_FALSE(CharacterMap::create(bytes.substr(0, bytes.size() - 1)).ok()) << "no 0 at the end";
  EXPECT_FALSE(CharacterMap::create(bytes + std::string(300, 'x') + '\0').ok()) << "a long text";
}

// Offsets and values that lead anywhere: no walk leaves the table, and no text grows by more than
// its longest entry.
TEST(CharacterMap, AnyTableIsReadWithinItsBounds) {
  std::mt19937 random(7);
  const std::string text = "the e\u0301 ｔ ﬁ \n\x01 中文 \xFF\xE2 ﷺ";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = table();
    if (round % 2 == 0) {
      for (size_t i = 4; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random());
      for (size_t i = bytes.size() - 200; i < bytes.size(); i += 50) bytes[i] = '\0';
      bytes.back() = '\0';
    } else {
      for (int change = 0; change < 40; ++change) {
        bytes[4 + random() % (bytes.size() - 5)] = static_cast<char>(random());
      }
    }
    const auto map = CharacterMap::create(bytes);
    if (!map.ok()) continue;
    EXPECT_LE(map->apply(text).size(), 256 * text.size());
  }
}

}  // namespace
}  // namespace ktx::text
