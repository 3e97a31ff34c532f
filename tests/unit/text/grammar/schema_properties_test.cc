// Properties of an object in their order, of which those that are not required may be absent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/text/grammar/grammar_fragments.h"
#include "lib/text/grammar/json_schema.h"
#include "tests/support/cpu_time.h"
#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

// Every subset that has what is required, in order and each once; nothing else.
TEST(SchemaProperties, ThoseThatMayBeAbsentKeepTheirOrder) {
  const std::vector<std::string> keys = {"a", "ab", "b", "", "abc", "a\\\"b"};
  const auto object = [&](const std::vector<size_t>& members) {
    std::string text;
    for (const size_t i : members) {
      text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", keys[i], i);
    }
    return "{" + text + "}";
  };
  for (size_t required = 0; required < 64; ++required) {
    std::string properties, names;
    for (size_t i = 0; i < keys.size(); ++i) {
      properties += fmt::format(R"({}"{}": {{"const": {}}})", i > 0 ? "," : "", keys[i], i);
      if ((required >> i & 1) == 0) continue;
      names += fmt::format(R"({}"{}")", names.empty() ? "" : ",", keys[i]);
    }
    const Grammar g =
        schema(fmt::format(R"({{"properties": {{{}}}, "required": [{}]}})", properties, names));
    for (size_t given = 0; given < 64; ++given) {
      std::vector<size_t> members;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (given >> i & 1) members.push_back(i);
      }
      EXPECT_EQ(matches(g, object(members)), (given & required) == required)
          << required << ": " << object(members);
      if (members.size() < 2) continue;
      const std::vector<size_t> backwards(members.rbegin(), members.rend());
      EXPECT_FALSE(matches(g, object(backwards))) << required << ": " << object(backwards);
      members.insert(members.begin(), members[0]);
      EXPECT_FALSE(matches(g, object(members))) << required << ": " << object(members);
    }
  }
}

TEST(SchemaProperties, OthersComeBehindThem) {
  const Grammar g = schema(
      R"({"properties": {"a": {"const": 1}, "ab": {"const": 2}}, "additionalProperties": {"const": 3}})");
  for (const char* yes : {"{}", R"({"a":1})", R"({"ab":2})", R"({"a":1,"ab":2,"abc":3,"":3})",
                          R"({"abc":3,"b":3})", R"({"a":1,"x":3})"}) {
    EXPECT_TRUE(matches(g, yes)) << yes;
  }
  for (const char* no : {R"({"a":3})", R"({"ab":3})", R"({"x":3,"a":1})", R"({"a":1,})",
                         R"({,"x":3})", R"({"ab":2,"a":1})", R"({"x":3,"ab":3})"}) {
    EXPECT_FALSE(matches(g, no)) << no;
  }
}

std::string numbers(int count) {
  std::string properties;
  for (int i = 0; i < count; ++i) {
    properties += fmt::format(R"({}"property_{:04}": {{"type": "number"}})", i > 0 ? "," : "", i);
  }
  return properties;
}

// Twice as many take twice as much.
TEST(SchemaProperties, ThoseThatMayBeAbsentTakeLinearWork) {
  const auto ways = [](int count, const char* others) {
    const auto rules = grammar::parse_json_schema(fmt::format(
        R"({{"properties": {{{}}}, "additionalProperties": {}}})", numbers(count), others));
    EXPECT_TRUE(rules.ok());
    bool full = false;
    const Result<grammar::Fragments> fragments = grammar::build_fragments(*rules, {}, full);
    EXPECT_TRUE(fragments.ok());
    size_t sum = 0;
    for (const grammar::FragmentState& state : fragments->states) {
      sum += 1 + state.empty.size() + state.bytes.size() + state.units.size();
    }
    return static_cast<double>(sum);
  };
  for (const char* others : {"false", "true"}) {
    EXPECT_LT(ways(800, others), 2.2 * ways(400, others)) << others;
  }
}

// 0.1 s for the automaton of 27,000 states; with a separator before each property it was 1.1 s.
TEST(SchemaProperties, FourHundredCompileInTime) {
#ifdef __SANITIZE_ADDRESS__
  constexpr double kMost = 20;
#else
  constexpr double kMost = 2;
#endif
  const double begin = testing::cpu_seconds();
  EXPECT_EQ(error_of(GrammarKind::JsonSchema, "{\"properties\": {" + numbers(400) + "}}"),
            "no error");
  EXPECT_LT(testing::cpu_seconds() - begin, kMost);
}

}  // namespace
}  // namespace ktx::text
