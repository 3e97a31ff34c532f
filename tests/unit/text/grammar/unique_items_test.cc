#include "lib/text/grammar/unique_items.h"

#include <gmock/gmock.h>

#include "tests/support/cpu_time.h"
#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

using nlohmann::json;

// The mask and accept() agree on each token, wherever the text is cut.
TEST(UniqueItems, TheMaskIsWhatIsAccepted) {
  const Grammar grammar = schema(R"({"type": "array", "uniqueItems": true, "items":
      {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "uniqueItems": true}]}})");
  std::vector<uint32_t> mask(grammar.vocabulary().mask_words());
  for (const std::string text :
       {R"(["a", "ab", 1, 12, [1, 2], ["a"], [[], [1]], "a\"b", "\u0061bc")", R"([[1, 1)",
        R"(["", "\n)", R"([1, 1)", "[", ""}) {
    GrammarState state(grammar);
    for (size_t at = 0; at <= text.size(); ++at) {
      state.fill_mask(mask);
      for (size_t token = 0; token < grammar.vocabulary().size(); ++token) {
        const bool may = mask[token / 32] >> (token % 32) & 1;
        EXPECT_EQ(GrammarState(state).accept(static_cast<int32_t>(token)), may)
            << text.substr(0, at) << " + " << grammar.vocabulary().token_text(token);
      }
      if (at == text.size() || !state.accept(std::string_view(text).substr(at, 1))) break;
    }
  }
}

TEST(UniqueItems, RandomAnswersHaveNoItemTwice) {
  std::mt19937 random(20261125);
  const Grammar grammar = schema(R"({"type": "array", "uniqueItems": true, "minItems": 3,
      "maxItems": 6, "items": {"type": "string", "minLength": 1, "pattern": "^[ab]{1,20}$"}})");
  int ended = 0;
  for (int i = 0; i < 60; ++i) {
    const Sample answer = sample(grammar, random, 200);
    if (!answer.ended) continue;
    ++ended;
    const json items = json::parse(answer.text);
    for (size_t a = 0; a < items.size(); ++a) {
      for (size_t b = 0; b < a; ++b) EXPECT_NE(items[a], items[b]) << answer.text;
    }
  }
  EXPECT_GT(ended, 40);
}

TEST(UniqueItems, ACopyGoesItsOwnWay) {
  const Grammar grammar =
      schema(R"({"type": "array", "uniqueItems": true, "items": {"type": "integer"}})");
  GrammarState one(grammar);
  ASSERT_TRUE(one.accept(std::string_view("[1, 2")));
  GrammarState other(one);
  EXPECT_TRUE(one.accept(std::string_view(", 3")));
  EXPECT_TRUE(other.accept(std::string_view(", 33")));
  EXPECT_FALSE(one.accept(std::string_view(", 3]")));
  EXPECT_TRUE(one.accept(std::string_view("4]")));
  EXPECT_TRUE(other.accept(std::string_view(", 3]")));
  EXPECT_TRUE(one.may_end() && other.may_end());
}

TEST(UniqueItems, AnArrayHasABoundedNumberOfItems) {
  const Grammar grammar =
      schema(R"({"type": "array", "uniqueItems": true, "items": {"type": "integer"}})");
  GrammarState state(grammar);
  std::string text = "[0";
  for (size_t i = 1; i < grammar::kMaxDistinctItems; ++i) text += "," + std::to_string(i);
  const double begin = testing::cpu_seconds();
  ASSERT_TRUE(state.accept(text));
  EXPECT_FALSE(GrammarState(state).accept(std::string_view(",")));
  EXPECT_TRUE(state.accept(std::string_view("]")));
  EXPECT_LT(testing::cpu_seconds() - begin, 1.0);
}

TEST(UniqueItems, ToolCallsKeepThem) {
  const CallableTool tool = {
      "f",
      {{"type", "object"},
       {"properties", {{"ids", {{"$ref", "#/$defs/Ids"}}}}},
       {"$defs",
        {{"Ids", {{"type", "array"}, {"uniqueItems", true}, {"items", {{"type", "integer"}}}}}}}},
      "tools[0]"};
  const auto grammar = Grammar::compile_tool_call(std::span(&tool, 1), small_vocabulary());
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_TRUE(matches(*grammar, R"({"name":"f","arguments":{"ids":[1,2]}})"));
  EXPECT_FALSE(matches(*grammar, R"({"name":"f","arguments":{"ids":[1,1]}})"));
}

}  // namespace
}  // namespace ktx::text
