#include "lib/server/filters/grammar_cache.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

text::Tokenizer bytes_tokenizer() {
  return text::Tokenizer::create(testing::tiny_bpe({{"ab"}}, {"a b"}).take()).take();
}

Constraint numbered(int i) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::Gbnf;
  constraint.text = "root ::= [a-z]{1," + std::to_string(100 + i) + "}";
  return constraint;
}

TEST(GrammarCache, KeepsTheLatestWithinItsMemory) {
  const text::Tokenizer tokenizer = bytes_tokenizer();
  const size_t one = GrammarCache(tokenizer).get(numbered(0))->memory_bytes();
  EXPECT_GT(one, 100u);
  GrammarCache cache(tokenizer, 10 * one);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(cache.get(numbered(i)).ok());
  EXPECT_GE(cache.size(), 3u);
  EXPECT_LE(cache.size(), 10u);

  GrammarCache roomy(tokenizer);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(roomy.get(numbered(i)).ok());
  EXPECT_EQ(roomy.size(), 64u);

  GrammarCache narrow(tokenizer, 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(narrow.get(numbered(i)).ok());
  EXPECT_EQ(narrow.size(), 1u) << "the latest stays";
}

TEST(GrammarCache, KeepsRefusals) {
  const text::Tokenizer tokenizer = bytes_tokenizer();
  GrammarCache cache(tokenizer);
  Constraint wrong = numbered(0);
  wrong.text = "root ::= (";
  const std::string error = cache.get(wrong).error().message;
  EXPECT_EQ(cache.compiled(), 1u);
  EXPECT_EQ(cache.get(wrong).error().message, error);
  EXPECT_EQ(cache.compiled(), 1u);
  // Many others make it forgotten, large ones as well.
  for (int i = 0; i < 64; ++i) {
    Constraint other = wrong;
    other.text += std::to_string(i);
    ASSERT_FALSE(cache.get(other).ok());
  }
  EXPECT_EQ(cache.get(wrong).error().message, error);
  EXPECT_EQ(cache.compiled(), 66u);
  for (int i = 0; i < 5; ++i) {
    Constraint other = wrong;
    other.text += std::string(1'000'000, static_cast<char>('a' + i));
    ASSERT_FALSE(cache.get(other).ok());
  }
  EXPECT_FALSE(cache.get(wrong).ok());
  EXPECT_EQ(cache.compiled(), 72u);
}

// Masks are found while a grammar is used: it grows, and others make room.
TEST(GrammarCache, CountsTheMasksThatWereFound) {
  const text::Tokenizer tokenizer = bytes_tokenizer();
  const size_t one = GrammarCache(tokenizer).get(numbered(0))->memory_bytes();
  GrammarCache cache(tokenizer, 6 * one);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cache.get(numbered(i)).ok());
  EXPECT_EQ(cache.size(), 4u);
  const text::Grammar used = cache.get(numbered(3)).take();
  text::GrammarState state(used);
  std::vector<uint32_t> mask(used.vocabulary().mask_words());
  for (int i = 0; i < 90; ++i) {
    ASSERT_TRUE(state.fill_mask(mask));
    ASSERT_TRUE(state.accept("a"));
  }
  EXPECT_GT(used.memory_bytes(), one);
  ASSERT_TRUE(cache.get(numbered(3)).ok());
  EXPECT_LT(cache.size(), 4u);
}

}  // namespace
}  // namespace ktx::server
