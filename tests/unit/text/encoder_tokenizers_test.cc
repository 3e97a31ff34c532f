// WordPiece and SentencePiece's unigram model against what the Python package `tokenizers` gives
// for the same small vocabularies (BertNormalizer and BertPreTokenizer; Metaspace).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/text/tokenizer/tokenizer.h"
#include "tests/support/character_table.h"
#include "tests/support/cpu_time.h"

namespace ktx::text {
namespace {

using ktx::testing::character_table;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Words begin with "▁", as in files.
constexpr std::string_view kWords[] = {
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁una", "ffa", "ble", "▁the", "▁!",
    "▁cafe", "s",     "▁a",    "a",     "▁中",    "▁文",  "▁,",  "▁$",  "▁don", "▁'",
    "▁t",    "ing",   "▁go",   "e",     "▁é",     "▁£",   "▁x",  "1",   "2"};

Tokenizer word_piece(std::optional<bool> lowercase = {},
                     std::span<const std::string_view> words = kWords) {
  std::vector<int32_t> types(words.size(), 1);
  for (int i = 0; i < 5; ++i) types[static_cast<size_t>(i)] = 3;
  TokenizerSource source;
  source.model = "bert";
  source.tokens = words;
  source.token_types = types;
  source.cls = 2;
  source.sep = 3;
  source.unk = 1;
  source.pad = 0;
  source.mask = 4;
  source.lowercase = lowercase;
  Result<TokenizerData> data = make_tokenizer_data(source);
  EXPECT_TRUE(data.ok()) << data.error().message;
  return Tokenizer::create(data.take()).take();
}

TEST(WordPiece, TakesTheLongestPartsOfEachWord) {
  const Tokenizer t = word_piece();
  EXPECT_THAT(t.encode("Unaffable!"), ElementsAre(5, 6, 7, 9));
  EXPECT_THAT(t.encode("don't go, going"), ElementsAre(18, 19, 20, 22, 16, 22, 21));
  EXPECT_THAT(t.encode("x12 x\u00a0x"), ElementsAre(26, 27, 28, 26, 26));
  EXPECT_THAT(t.encode("unaffx"), ElementsAre(1)) << "a word that does not come out even";
  EXPECT_THAT(t.encode(""), IsEmpty());
  EXPECT_THAT(t.encode("  "), IsEmpty());
}

TEST(WordPiece, MakesLettersSmallAndDropsAccentsWhereTheVocabularyHasNoCapitals) {
  const Tokenizer t = word_piece();
  EXPECT_THAT(t.encode("the  cafés"), ElementsAre(8, 10, 11));
  EXPECT_THAT(t.encode("THE\tCafé\u200b s"), ElementsAre(8, 10, 1));
  EXPECT_THAT(t.encode("a\u0301a"), ElementsAre(12, 13));
  EXPECT_THAT(word_piece(false).encode("THE the é"), ElementsAre(1, 8, 24));
}

// Ids by the library tokenizers 0.23 for white space, controls, and characters that become others.
TEST(WordPiece, CharactersGoByTheirClasses) {
  constexpr std::string_view kCharacters[] = {
      "[PAD]", "[UNK]",   "[CLS]",  "[SEP]",  "[MASK]", "▁a", "a",  "▁b", "b",
      "▁=",    "▁i",      "i",      "\u0307", "▁`",     "▁;", "▁k", "k",  "▁ss",
      "ss",    "▁\u1100", "\u1161", "▁ß",     "ß",      "▁σ", "σ",  "▁ς", "ς"};
  using Cases = std::vector<std::pair<std::string_view, std::vector<int32_t>>>;
  const Cases small = {
      {"a\u2028b", {5, 7}},
      {"a\u2029b", {5, 7}},
      {"a\x0b"
       "b",
       {5, 8}},
      {"a\x0c"
       "b",
       {5, 8}},
      {"a\u0085b", {5, 8}},
      {"a≠b", {5, 9, 7}},
      {"a\u1fefb", {5, 13, 7}},
      {"a\u037eb", {5, 14, 7}},
      {"İ", {10}},
      {"Aİ", {5, 11}},
      {"\u212a", {15}},
      {"ẞ", {21}},
      {"가", {19, 20}},
      {"a\u00adb", {5, 8}},
      {"a\u200bb", {5, 8}},
      {"a\u200db", {5, 8}},
      {"a\ufeffb", {5, 8}},
      {"a\ufffdb", {5, 8}},
      {"a\u00a0b", {5, 7}},
      {"Σ", {23}},
      {"a\u0301\u0302b", {5, 8}},
      {"a\ue000b", {5, 8}},
      {"a\u0378b", {1}},
      {"a\U0002b820b", {1}},
      {"a\U0002b81fb", {5, 1, 7}},
      {"⩴", {1}},
      {"a\u180eb", {5, 8}},
      {"a\u1680b", {5, 7}},
  };
  const Tokenizer t = word_piece(true, kCharacters);
  for (const auto& [text, ids] : small) EXPECT_EQ(t.encode(text), ids) << text;
  EXPECT_THAT(t.encode(std::string_view("a\0b", 3)), ElementsAre(5, 8));
  const Cases as_written = {
      {"a\u2028b", {5, 7}},
      {"a\x0b"
       "b",
       {5, 8}},
      {"a≠b", {1}},
      {"a\u037eb", {5, 1, 7}},
      {"İ", {1}},
      {"가", {1}},
      {"a\u0301\u0302b", {1}},
      {"a\U0002b820b", {1}},
  };
  const Tokenizer cased = word_piece(false, kCharacters);
  for (const auto& [text, ids] : as_written) EXPECT_EQ(cased.encode(text), ids) << text;
}

TEST(WordPiece, CutsAtPunctuationAndChineseCharacters) {
  const Tokenizer t = word_piece();
  EXPECT_THAT(t.encode("中文中"), ElementsAre(14, 15, 14));
  EXPECT_THAT(t.encode("$£"), ElementsAre(17, 25));
  EXPECT_THAT(t.encode("the\u3000the"), ElementsAre(8, 8));
}

TEST(WordPiece, WordsOfMoreThanAHundredCharactersAreUnknown) {
  const Tokenizer t = word_piece();
  EXPECT_EQ(t.encode(std::string(100, 'a')).size(), 100U);
  EXPECT_THAT(t.encode(std::string(101, 'a')), ElementsAre(1));
}

TEST(WordPiece, TextsStandBetweenTheirSpecialTokens) {
  const Tokenizer t = word_piece();
  EXPECT_EQ(t.bos(), 2);
  EXPECT_EQ(t.eos(), 3);
  EXPECT_TRUE(t.data().add_bos && t.data().add_eos);
  EXPECT_THAT(t.encode_prompt("the"), ElementsAre(2, 8));
  EXPECT_THAT(t.encode_prompt("[CLS] the"), ElementsAre(2, 2, 8)) << "written, and put before it";
  EXPECT_THAT(t.encode_prompt(""), ElementsAre(2));
  EXPECT_THAT(t.encode("[SEP] the", {.parse_special = true}), ElementsAre(3, 8));
}

TEST(WordPiece, AnyBytesEndInTime) {
  const Tokenizer t = word_piece();
  std::string bytes;
  for (int i = 0; i < 1 << 18; ++i) bytes.push_back(static_cast<char>(i * 7 % 256));
  bytes += std::string(1 << 18, 'a') + std::string(1 << 18, '!');
  const double begin = testing::cpu_seconds();
  EXPECT_FALSE(t.encode(bytes).empty());
  EXPECT_LT(testing::cpu_seconds() - begin, 5);
}

constexpr std::string_view kPieces[] = {"<s>",  "<pad>", "</s>", "<unk>", "▁",  "▁the",
                                        "▁cat", "th",    "e",    "c",     "at", "▁t",
                                        "he",   "a",     "t",    "cat",   "▁c"};
constexpr float kScores[] = {0,     0,     0,     0,     -2,    -3,    -5,    -4.5F, -3.5F,
                             -4.0F, -4.2F, -4.0F, -3.9F, -3.8F, -3.9F, -6.5F, -4.5F};

// `spaces`: as the model says of SentencePiece's normaliser.
struct Spaces {
  bool prefix = true;
  bool remove_extra = false;
};

Tokenizer unigram(std::string_view character_map = {}, Spaces spaces = {}, bool unk = true) {
  std::vector<int32_t> types(std::size(kPieces), 1);
  for (int i = 0; i < 3; ++i) types[static_cast<size_t>(i)] = 3;
  types[3] = 2;
  TokenizerSource source;
  source.character_map = character_map;
  source.add_space_prefix = spaces.prefix;
  source.remove_extra_whitespaces = spaces.remove_extra;
  source.model = "t5";
  source.tokens = kPieces;
  source.scores = kScores;
  source.token_types = types;
  source.bos = 0;
  source.eos = 2;
  if (unk) source.unk = 3;
  Result<TokenizerData> data = make_tokenizer_data(source);
  EXPECT_TRUE(data.ok()) << data.error().message;
  return Tokenizer::create(data.take()).take();
}

// The lines of SentencePiece's nmt_nfkc that the texts below are about.
std::string some_of_nmt_nfkc() {
  return character_table({{"\t", " "},
                          {"\n", " "},
                          {"\r", " "},
                          {"\u200b", " "},
                          {"\u200e", " "},
                          {"\u2028", " "},
                          {"\u2581", " "},
                          {"\u3000", " "},
                          {"\ufeff", " "},
                          {"\x01", ""},
                          {"\x7f", ""},
                          {"ｔ", "t"},
                          {"ｈ", "h"},
                          {"ｅ", "e"},
                          {"ｃ", "c"},
                          {"ａ", "a"}});
}

// Ids of sentencepiece 0.2 for the same pieces and the whole of its nmt_nfkc.
TEST(Unigram, TextsAreNormalisedByTheFilesOwnTable) {
  const std::string table = some_of_nmt_nfkc();
  const Tokenizer t = unigram(table, {.remove_extra = true});
  for (const std::string_view text :
       {"the\ncat", "the\r\ncat", "\tthe \u200b cat\n", "the\u2028cat", "ｔｈｅ　ｃａｔ",
        "the\u2581cat", "  the cat  "}) {
    EXPECT_THAT(t.encode(text), ElementsAre(5, 6)) << text;
  }
  EXPECT_THAT(t.encode("\ufeffthe"), ElementsAre(5));
  EXPECT_THAT(t.encode("t\x01he"), ElementsAre(5));
  EXPECT_THAT(t.encode("cat\u2581"), ElementsAre(6));
  EXPECT_THAT(t.encode("\u200ecat"), ElementsAre(6));
  EXPECT_THAT(t.encode("\x7f"
                       "cat"),
              ElementsAre(6));
  EXPECT_THAT(t.encode("t\u00adhe"), ElementsAre(11, 3, 12)) << "a soft hyphen is unknown";
  for (const std::string_view text : {"", "  ", "\n \t", "\x01"}) {
    EXPECT_THAT(t.encode(text), IsEmpty());
  }
}

TEST(Unigram, SpacesGoByWhatTheFileSays) {
  const std::string table = some_of_nmt_nfkc();
  const Tokenizer bare = unigram(table, {.prefix = false, .remove_extra = true});
  EXPECT_THAT(bare.encode("\tthe \u200b cat\n"), ElementsAre(14, 12, 6));
  EXPECT_THAT(bare.encode("cat\u2581"), ElementsAre(15));
  const Tokenizer all = unigram(table, {});
  EXPECT_THAT(all.encode("the\r\ncat"), ElementsAre(5, 4, 6));
  EXPECT_THAT(all.encode("\tthe \u200b cat\n"), ElementsAre(4, 5, 4, 4, 6, 4));
  EXPECT_THAT(all.encode("\ufeffthe"), ElementsAre(4, 5));
  EXPECT_THAT(all.encode("\x01"), ElementsAre(4)) << "the space in front alone";
  EXPECT_THAT(all.encode("  "), ElementsAre(4, 4, 4));
  EXPECT_THAT(all.encode("cat\u2581"), ElementsAre(6, 4));
}

TEST(Unigram, TheUnknownTokenIsFoundByItsTypeWhereNoKeyNamesIt) {
  EXPECT_THAT(unigram({}, {}, false).encode("the ☃"), ElementsAre(5, 4, 3));
}

TEST(Unigram, ControlTokensInATextAreText) {
  const Tokenizer t = unigram();
  EXPECT_THAT(t.encode_prompt("<s>"), ElementsAre(0, 4, 3)) << "no token has these characters";
  EXPECT_THAT(t.encode("<s>", {.parse_special = true}), ElementsAre(0));
}

TEST(Unigram, ADamagedTableIsRefused) {
  TokenizerSource source;
  source.model = "t5";
  source.tokens = kPieces;
  source.scores = kScores;
  source.character_map = "damaged";
  const Result<TokenizerData> data = make_tokenizer_data(source);
  ASSERT_FALSE(data.ok());
  EXPECT_THAT(data.error().message,
              ::testing::HasSubstr("tokenizer.ggml.precompiled_charsmap: the table of characters"));
}

TEST(Unigram, TakesTheBestWayThroughTheText) {
  const Tokenizer t = unigram();
  EXPECT_THAT(t.encode("the cat"), ElementsAre(5, 6));
  EXPECT_THAT(t.encode("thecat"), ElementsAre(5, 15));
  EXPECT_THAT(t.encode("catcat"), ElementsAre(6, 15));
  EXPECT_THAT(t.encode("hehe"), ElementsAre(4, 12, 12));
}

TEST(Unigram, NeighboursThatNoTokenHasAreUnknownTogether) {
  const Tokenizer t = unigram();
  EXPECT_THAT(t.encode("xyz"), ElementsAre(4, 3));
  EXPECT_THAT(t.encode("a x t"), ElementsAre(4, 13, 4, 3, 11));
  EXPECT_THAT(t.encode("é"), ElementsAre(4, 3));
}

TEST(Unigram, AnyBytesEndInTime) {
  const Tokenizer t = unigram();
  std::string bytes;
  for (int i = 0; i < 1 << 19; ++i) bytes.push_back(static_cast<char>(i * 7 % 256));
  bytes += std::string(1 << 18, 't');
  const double begin = testing::cpu_seconds();
  EXPECT_FALSE(t.encode(bytes).empty());
  EXPECT_LT(testing::cpu_seconds() - begin, 10);
}

TEST(EncoderTokenizers, ComeBackFromAPlanAsTheyWere) {
  const Tokenizer word = word_piece(), piece = unigram(some_of_nmt_nfkc());
  for (const Tokenizer* t : {&word, &piece}) {
    const std::string bytes = serialize(t->data());
    const Result<TokenizerData> data = parse_tokenizer_data(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(data.ok()) << data.error().message;
    EXPECT_EQ(*data, t->data());
  }
}

// Others' text cannot hold control tokens; what stands around it can, and words run through.
TEST(EncoderTokenizers, TextFromOutsideHasNoControlTokens) {
  const Tokenizer t = word_piece();
  const std::string_view text = "[CLS]unaffable[SEP][SEP]";
  const TextSpan outside[] = {{8, 19}};
  const auto ids = t.encode(text, {.parse_special = true, .outside = outside});
  EXPECT_EQ(ids.front(), 2);
  EXPECT_EQ(ids.back(), 3);
  EXPECT_THAT(std::vector(ids.begin() + 1, ids.begin() + 4), ElementsAre(5, 6, 7));
  EXPECT_EQ(std::ranges::count(ids, 3), 1);
}

}  // namespace
}  // namespace ktx::text
