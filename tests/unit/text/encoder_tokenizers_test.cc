// WordPiece and SentencePiece's unigram model against what the Python package `tokenizers` gives
// for the same small vocabularies (BertNormalizer and BertPreTokenizer; Metaspace).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/text/tokenizer/tokenizer.h"
#include "tests/support/cpu_time.h"

namespace ktx::text {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Words begin with "▁", as in files.
constexpr std::string_view kWords[] = {
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁una", "ffa", "ble", "▁the", "▁!",
    "▁cafe", "s",     "▁a",    "a",     "▁中",    "▁文",  "▁,",  "▁$",  "▁don", "▁'",
    "▁t",    "ing",   "▁go",   "e",     "▁é",     "▁£",   "▁x",  "1",   "2"};

Tokenizer word_piece(std::optional<bool> lowercase = {}) {
  std::vector<int32_t> types(std::size(kWords), 1);
  for (int i = 0; i < 5; ++i) types[static_cast<size_t>(i)] = 3;
  TokenizerSource source;
  source.model = "bert";
  source.tokens = kWords;
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

Tokenizer unigram() {
  std::vector<int32_t> types(std::size(kPieces), 1);
  for (int i = 0; i < 3; ++i) types[static_cast<size_t>(i)] = 3;
  types[3] = 2;
  TokenizerSource source;
  source.model = "t5";
  source.tokens = kPieces;
  source.scores = kScores;
  source.token_types = types;
  source.bos = 0;
  source.eos = 2;
  source.unk = 3;
  Result<TokenizerData> data = make_tokenizer_data(source);
  EXPECT_TRUE(data.ok()) << data.error().message;
  return Tokenizer::create(data.take()).take();
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
  const Tokenizer word = word_piece(), piece = unigram();
  for (const Tokenizer* t : {&word, &piece}) {
    const std::string bytes = serialize(t->data());
    const Result<TokenizerData> data = parse_tokenizer_data(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(data.ok()) << data.error().message;
    EXPECT_EQ(*data, t->data());
  }
}

// Others' text cannot hold control tokens; what stands around it can, and words run through.
TEST(EncoderTokenizers, PartsAreOneTextInWhichSomeHaveNoControlTokens) {
  const Tokenizer t = word_piece();
  const Tokenizer::Part parts[] = {{"[CLS]una", true}, {"ffable[SEP]", false}, {"[SEP]", true}};
  const auto ids = t.encode_parts(parts);
  EXPECT_EQ(ids.front(), 2);
  EXPECT_EQ(ids.back(), 3);
  EXPECT_THAT(std::vector(ids.begin() + 1, ids.begin() + 4), ElementsAre(5, 6, 7));
  EXPECT_EQ(std::ranges::count(ids, 3), 1);
}

}  // namespace
}  // namespace ktx::text
