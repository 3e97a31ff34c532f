#include "lib/text/tokenizer/token_map.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::text {
namespace {

using ktx::testing::tiny_bpe;
using ktx::testing::tiny_spm;
using ktx::testing::TinyToken;

// Its first token behind those of bytes; "ab", which has a merge, is before it.
constexpr int32_t kFirst = 257;

Tokenizer bpe(std::vector<TinyToken> more) {
  more.insert(more.begin(), TinyToken{"ab"});
  auto data = tiny_bpe(more, {"a b"});
  EXPECT_TRUE(data.ok()) << data.error().message;
  return Tokenizer::create(data.take()).take();
}

TEST(TokenMap, KnowsEqualVocabularies) {
  const Tokenizer a = bpe({{"Hel"}, {"lo"}}),
                  b = bpe({{"Hel"}, {"lo"}, {"<|pad|>", TokenType::Control}});
  EXPECT_TRUE(same_tokens(a, a));
  EXPECT_TRUE(same_tokens(a, b)) << "tokens at the end of one of them alone";
  EXPECT_FALSE(same_tokens(a, bpe({{"lo"}, {"Hel"}})));
  EXPECT_FALSE(same_tokens(a, bpe({{"Hel"}, {"lo", TokenType::Control}})));
}

TEST(TokenMap, GoesByTheBytes) {
  const Tokenizer model = bpe({{"Hello"}, {"lo"}, {"<|end|>", TokenType::Control}});
  const Tokenizer draft = bpe({{"<|end|>", TokenType::Control}, {"lo"}, {"Hel"}, {"world"}});
  const TokenMap map = map_tokens(model, draft);
  ASSERT_EQ(map.forth.size(), 260u);
  ASSERT_EQ(map.back.size(), 261u);
  EXPECT_EQ(map.forth['A'], std::vector<int32_t>{'A'});
  EXPECT_EQ(map.forth[kFirst], (std::vector<int32_t>{kFirst + 2, kFirst + 1}))
      << "Hello is Hel, lo";
  EXPECT_EQ(map.forth[kFirst + 1], std::vector<int32_t>{kFirst + 1});
  EXPECT_EQ(map.forth[kFirst + 2], std::vector<int32_t>{kFirst}) << "control tokens by name";
  EXPECT_EQ(map.back[kFirst], kFirst + 2);
  EXPECT_EQ(map.back[kFirst + 2], -1) << "the model has no Hel";
  EXPECT_EQ(map.back[kFirst + 3], -1);
  EXPECT_EQ(map.back['z'], 'z');
}

TEST(TokenMap, AWordIsNoControlToken) {
  const Tokenizer model = bpe({{"<|mark|>", TokenType::Control}});
  const Tokenizer draft = bpe({{"<|mark|>"}});
  const TokenMap map = map_tokens(model, draft);
  EXPECT_EQ(map.back[kFirst], -1);
}

TEST(TokenMap, JoinsKindsOfVocabularies) {
  const Tokenizer model = Tokenizer::create(tiny_spm({{"\u2581the"}, {"fox"}}).take()).take();
  const Tokenizer draft = bpe({{"\u0120the"}, {"fo"}});
  const TokenMap map = map_tokens(model, draft);
  EXPECT_EQ(map.forth[259], std::vector<int32_t>{kFirst}) << "both are \" the\"";
  EXPECT_EQ(map.forth[260], (std::vector<int32_t>{kFirst + 1, 'x'}));
  EXPECT_EQ(map.back[kFirst], 259);
  EXPECT_EQ(map.back['a'], 3 + 'a') << "byte tokens";
}

// A token of a megabyte, and a text that would be cut at every place of it.
TEST(TokenMap, HostileTokensMeetLimits) {
  const Tokenizer model = bpe({{std::string(1 << 20, 'a')}, {std::string(100, 'b')}});
  const Tokenizer draft = bpe({{std::string(1 << 20, 'a') + "b"}});
  const TokenMap map = map_tokens(model, draft);
  EXPECT_TRUE(map.forth[kFirst].empty());
  EXPECT_EQ(map.forth[kFirst + 1].size(), 100u);
}

}  // namespace
}  // namespace ktx::text
