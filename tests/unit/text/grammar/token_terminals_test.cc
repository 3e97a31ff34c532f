#include "lib/text/grammar/token_terminals.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

using ::testing::HasSubstr;

// Bytes, then words, then what has no text, and an end token.
enum : int32_t { kFox = 256, kThinkText, kThink, kThinkEnd, kStop, kTokens };

std::shared_ptr<const GrammarVocabulary> token_vocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.emplace_back("fox");
    tokens.emplace_back("<note>");
    tokens.resize(kTokens);
    return GrammarVocabulary::create(
        std::move(tokens), {kStop},
        {{"<think>", kThink}, {"</think>", kThinkEnd}, {"<end>", kStop}});
  }();
  return vocabulary;
}

Result<Grammar> compile(const std::string& text) {
  return Grammar::compile({GrammarKind::Gbnf, text}, token_vocabulary());
}

// The mask and accept() agree on each token.
std::vector<int32_t> allowed(const GrammarState& state) {
  std::vector<uint32_t> mask(token_vocabulary()->mask_words());
  state.fill_mask(mask);
  std::vector<int32_t> out;
  for (int32_t token = 0; token < kTokens; ++token) {
    const bool may = mask[token / 32] >> (token % 32) & 1;
    EXPECT_EQ(may, GrammarState(state).accept(token)) << token;
    if (may) out.push_back(token);
  }
  return out;
}

bool accepts(const std::string& grammar, const std::vector<int32_t>& tokens) {
  const auto compiled = compile(grammar);
  if (!compiled) ADD_FAILURE() << compiled.error().message;
  if (!compiled) return false;
  GrammarState state(*compiled);
  for (const int32_t token : tokens) {
    allowed(state);
    if (!state.accept(token)) return false;
  }
  return state.may_end();
}

TEST(TokenTerminals, MatchTheTokenAndNotItsText) {
  EXPECT_TRUE(accepts("root ::= <[256]>", {kFox}));
  EXPECT_FALSE(accepts("root ::= <[256]>", {'f', 'o', 'x'}));
  EXPECT_TRUE(accepts("root ::= \"fox\"", {kFox}));
  EXPECT_TRUE(accepts("root ::= <note>", {kThinkText}));
  EXPECT_FALSE(accepts("root ::= <note>", {'<', 'n', 'o', 't', 'e', '>'}));
  EXPECT_TRUE(accepts("root ::= <think>", {kThink}));
  EXPECT_TRUE(accepts("root ::= <[255]>", {255})) << "a byte that is no text by itself";
}

TEST(TokenTerminals, OthersAreAllButOneAndTheEnd) {
  const auto compiled = compile("root ::= !<[256]>");
  ASSERT_TRUE(compiled) << compiled.error().message;
  std::vector<int32_t> others;
  for (int32_t token = 0; token < kStop; ++token) {
    if (token != kFox) others.push_back(token);
  }
  EXPECT_EQ(allowed(GrammarState(*compiled)), others);
}

TEST(TokenTerminals, ThinkingEndsAtItsToken) {
  // The example of llama.cpp's documentation.
  const std::string grammar = "root ::= <think> thinking </think> .*\nthinking ::= !</think>*";
  EXPECT_TRUE(accepts(grammar, {kThink, kFox, 200, kThink, kThinkEnd, 'o', 'k'}));
  EXPECT_FALSE(accepts(grammar, {kThink, kFox}));
  EXPECT_FALSE(accepts(grammar, {kFox, kThink, kThinkEnd}));
  EXPECT_FALSE(accepts(grammar, {kThink, kThinkEnd, 'o', kThink})) << "behind it is text alone";
}

TEST(TokenTerminals, StandBesideTextAndInRecursion) {
  const std::string grammar = "root ::= \"a\" <[256]> root \"b\" | <think> | \"fox\"";
  EXPECT_TRUE(accepts(grammar, {'a', kFox, 'a', kFox, kThink, 'b', 'b'}));
  EXPECT_TRUE(accepts(grammar, {'a', kFox, kFox, 'b'}));
  EXPECT_FALSE(accepts(grammar, {'a', 'f', 'o', 'x', kThink, 'b'}));
  // Both readings of one token go on.
  const std::string both = "root ::= <[256]> \"x\" | \"fox\" \"y\"";
  EXPECT_TRUE(accepts(both, {kFox, 'x'}));
  EXPECT_TRUE(accepts(both, {kFox, 'y'}));
  EXPECT_FALSE(accepts(both, {'f', 'o', 'x', 'x'}));
}

// Bytes that could be read as a terminal are no text.
TEST(TokenTerminals, BytesOfATextAreNoTerminal) {
  EXPECT_FALSE(accepts("root ::= <[256]>", {0xF8, 0, 1, 0}));
  const auto compiled = compile("root ::= <[256]>");
  ASSERT_TRUE(compiled);
  EXPECT_FALSE(GrammarState(*compiled).accept(grammar::token_terminal(kFox)));
}

TEST(TokenTerminals, RandomAnswersAgreeWithTheMask) {
  std::mt19937 random(20261125);
  for (const char* text :
       {"root ::= (<[97]> | !<[98]> \"c\" | [a-f]{1,5})*", "root ::= !<think>{2,4} \"fox\"*",
        "root ::= \"(\" root \")\" | !<[40]> | \"\""}) {
    const auto compiled = compile(text);
    ASSERT_TRUE(compiled) << text << compiled.error().message;
    for (int answer = 0; answer < 20; ++answer) {
      GrammarState state(*compiled);
      for (int i = 0; i < 12; ++i) {
        const std::vector<int32_t> may = allowed(state);
        if (may.empty()) break;
        const int32_t token = may[random() % may.size()];
        ASSERT_TRUE(state.accept(token)) << text;
        if (token == kStop) break;
      }
    }
  }
}

TEST(TokenTerminals, SayWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> kErrors[] = {
      {"root ::= <nope>", "grammar:1:10: no token has exactly this text"},
      {"root ::= <[999]>", "grammar:1:10: expected the number of a token, 0 to 260"},
      {"root ::= <[-1]>", "expected the number of a token"},
      {"root ::= <[12x]>", "expected the number of a token"},
      {"root ::= \"a\" !<think", "grammar:1:14: the token has no closing '>'"},
      {"root ::= <end>", "this token ends the answer"},
      {"root ::= ! \"a\"", "expected a literal, a class, a token"},
  };
  for (const auto& [text, error] : kErrors) {
    const auto compiled = compile(text);
    EXPECT_FALSE(compiled) << text;
    if (!compiled) {
      EXPECT_THAT(compiled.error().message, HasSubstr(error)) << text;
    }
  }
}

}  // namespace
}  // namespace ktx::text
