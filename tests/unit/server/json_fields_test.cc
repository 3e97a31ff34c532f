#include "lib/server/http/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::server {
namespace {

using ::testing::HasSubstr;

std::string refused(const std::string& text) {
  const auto body = parse_body(text);
  return body ? "" : body.error().message;
}

TEST(ParseBody, TakesObjectsOnly) {
  EXPECT_EQ(refused(R"({"a": [1, {"b": null}]})"), "");
  EXPECT_THAT(refused(""), HasSubstr("empty"));
  EXPECT_THAT(refused("[1]"), HasSubstr("a list"));
  EXPECT_THAT(refused("{\"a\": }"), HasSubstr("at byte 7"));
  EXPECT_THAT(refused("{\"a\": \"\xff\"}"), HasSubstr("no JSON"));
  EXPECT_EQ(refused("{\"a\": 1e999}"), "");
  EXPECT_THAT(refused("{\"a\": 1e999, \"b\": }"), HasSubstr("at byte 19"));
  EXPECT_THAT(refused("{\"a\": NaN}"), HasSubstr("no JSON"));
}

TEST(ParseBody, BoundsTheNesting) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(refused(nested(kMaxJsonNesting - 1)), "");
  EXPECT_THAT(refused(nested(kMaxJsonNesting)), HasSubstr("nested more than"));
  EXPECT_THAT(refused(nested(1000000)), HasSubstr("nested more than"));
  // Brackets in strings nest nothing.
  EXPECT_EQ(refused("{\"a\": \"" + std::string(1000, '[') + "\\\"[\"}"), "");
}

// Each key is compared with all before it: 1 MB of them would take minutes, 32 MB hours.
TEST(ParseBody, BoundsTheMembersOfAnObject) {
  const auto members = [](int count) {
    std::string text = "{\"k\":0";
    for (int i = 1; i < count; ++i) text += ",\"k" + std::to_string(i) + "\":0";
    return text + "}";
  };
  EXPECT_EQ(refused(members(5000)), "");
  EXPECT_THAT(refused(members(300000)), HasSubstr("too many members"));
  EXPECT_THAT(refused("{\"a\": [" + members(9000) + "," + members(9000) + "]}"),
              HasSubstr("too many members"));
  std::string list = "{\"a\": [{\"b\": 1, \"c\": 2}";
  for (int i = 0; i < 100000; ++i) list += ", {\"b\": 1, \"c\": 2}";
  EXPECT_EQ(refused(list + "]}"), "");
}

// 33 MB of "{}," took 770 MB, and as much again for each request beside it.
TEST(ParseBody, BoundsTheMemoryOfTheValues) {
  const auto list = [](const std::string& value, int count) {
    std::string text = "{\"a\":[" + value;
    for (int i = 1; i < count; ++i) text += "," + value;
    return text + "]}";
  };
  EXPECT_EQ(refused(list("0", 4'000'000)), "") << "token ids of a long context";
  EXPECT_EQ(refused(list("{}", 1'000'000)), "");
  for (const char* value : {"{}", "[]", "\"\"", "[0]"}) {
    EXPECT_THAT(refused(list(value, 8'000'000)), HasSubstr("at most 256.00 MiB are possible"))
        << value;
  }
  EXPECT_THAT(refused(list("0", 16'000'000)), HasSubstr("too many values"));
  EXPECT_EQ(refused("{\"a\": \"" + std::string(30'000'000, ',') + "\"}"), "");
}

TEST(ParseNested, DiscardsWhatIsTooDeepOrTooLarge) {
  EXPECT_EQ(parse_nested("{\"a\": [1]}"), Json({{"a", {1}}}));
  EXPECT_TRUE(parse_nested("{\"a\":").is_discarded());
  EXPECT_TRUE(parse_nested("{\"a\":" + std::string(1000000, '[')).is_discarded());
  EXPECT_TRUE(parse_nested(std::string(1000000, '[') + std::string(1000000, ']')).is_discarded());
}

TEST(FieldReader, NamesTheFirstWrongField) {
  const Json body = {{"t", 5}, {"n", 1.5}, {"s", 3}, {"nothing", nullptr}, {"whole", 3.0}};
  FieldReader in(body, "options.");
  EXPECT_EQ(in.number("nothing", 0.5, 0, 1), 0.5);
  EXPECT_EQ(in.number("absent", 0.25, 0, 1), 0.25);
  EXPECT_EQ(in.whole("whole", 0, 0, 9), 3);
  EXPECT_TRUE(in.status());
  in.number("t", 0, 0, 2);
  in.whole("n", 1, 0, 9);
  in.text("s");
  ASSERT_FALSE(in.status());
  EXPECT_EQ(in.status().error().param, "options.t");
  EXPECT_EQ(in.status().error().message, "'options.t' is 5, expected a number from 0 to 2");
}

TEST(FieldReader, NumbersOfAnySizeAreSafe) {
  for (const char* text : {"1e300", "-1e300", "18446744073709551615", "9223372036854775808", "-1",
                           "1.5", "\"1\"", "[]", "true"}) {
    const Json body = Json::parse("{\"n\": " + std::string(text) + "}");
    FieldReader in(body);
    EXPECT_EQ(in.whole("n", 7, 0, 100), 7) << text;
    EXPECT_FALSE(in.status()) << text;
  }
  const Json endless = parse_body("{\"n\": 1e999, \"t\": -1e999, \"s\": 1e999}").take();
  FieldReader whole(endless), number(endless), seed(endless);
  whole.whole("n", 7, 0, 100);
  EXPECT_EQ(whole.status().error().message, "'n' is 1e999, expected a whole number from 0 to 100");
  number.number("t", 1, 0, 2);
  EXPECT_EQ(number.status().error().message, "'t' is -1e999, expected a number from 0 to 2");
  seed.maybe_seed("s");
  EXPECT_THAT(seed.status().error().message, HasSubstr("'s' is 1e999, expected a whole number"));
  const Json body = {{"n", INT64_MIN}};
  FieldReader in(body);
  EXPECT_EQ(in.whole("n", 0, INT64_MIN, INT64_MAX), INT64_MIN);
  EXPECT_TRUE(in.status());
}

TEST(FieldReader, ALargeCountIsNoLimit) {
  const Json body =
      parse_body(
          R"({"a": 9223372036854775807, "b": 18446744073709551615, "c": 2e12, "f": 1e300, "d": 7, "e": -2})")
          .take();
  FieldReader in(body);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(in.maybe_count(name, -1), FieldReader::kNoCountLimit) << name;
  }
  EXPECT_EQ(in.maybe_count("d", -1), 7);
  EXPECT_EQ(in.maybe_count("missing", -1), std::nullopt);
  EXPECT_TRUE(in.status());
  EXPECT_EQ(in.maybe_count("e", -1), std::nullopt);
  EXPECT_FALSE(in.status());
  FieldReader larger(body);
  EXPECT_EQ(larger.maybe_count("f", -1), std::nullopt);
  EXPECT_FALSE(larger.status());
}

TEST(FieldReader, TextsAreOneOrAList) {
  const Json body = {
      {"one", "a"}, {"two", {"a", "b"}}, {"bad", {"a", 1}}, {"many", {"a", "b", "c"}}};
  FieldReader in(body);
  EXPECT_EQ(in.texts("one", 2), std::vector<std::string>{"a"});
  EXPECT_EQ(in.texts("two", 2).size(), 2u);
  EXPECT_TRUE(in.texts("absent", 2).empty());
  EXPECT_TRUE(in.status());
  in.texts("many", 2);
  EXPECT_EQ(in.status().error().param, "many");
  FieldReader other(body);
  other.texts("bad", 2);
  EXPECT_EQ(other.status().error().param, "bad");
}

TEST(JsonFields, AFloatIsWrittenAsShortAsItIs) {
  EXPECT_EQ(dump(decimal(0.8f)), "0.8");
  EXPECT_EQ(dump(decimal(-1.0f)), "-1.0");
  for (const float value : {0.1f, 1e-30f, 3.4e38f, -0.026784535f, 16777217.0f}) {
    EXPECT_EQ(static_cast<float>(decimal(value).get<double>()), value);
  }
}

}  // namespace
}  // namespace ktx::server
