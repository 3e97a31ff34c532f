#include "lib/text/answers/call_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

// What is read of `text`, byte by byte as well; with `close` its missing brackets are added.
std::string read(std::string_view text, bool close = false) {
  CallJson whole, cut;
  whole.read(text);
  std::string before;
  for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
    cut.read(text.substr(0, bytes));
    EXPECT_TRUE(cut.json().starts_with(before)) << text << ": what was said was taken back";
    before = cut.json();
  }
  EXPECT_EQ(cut.json(), whole.json()) << text;
  EXPECT_EQ(cut.at(), whole.at()) << text;
  if (close && !whole.close()) return "no";
  if (whole.state() == CallJson::State::Stopped) return "stopped " + std::to_string(whole.at());
  return whole.json();
}

TEST(CallJson, LeavesJsonAsItIs) {
  for (const char* json :
       {"{}", "[]", R"({"a": [1, -2.5e+3, true, false, null, {}], "b\u00e9\n\"": "\\ x / é"})",
        "[ 1 ,\n 2 ]", R"([123456789012345678901234567890])"}) {
    EXPECT_EQ(read(json), json);
  }
}

TEST(CallJson, MendsWhatHasOneReading) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{'a': 'x', \"b\": 'say \"hi\"'}", R"({"a": "x", "b": "say \"hi\""})"},
      {"{'it\\'s': \"it\\'s\"}", R"({"it's": "it's"})"},
      {"[True, False, None]", "[true, false, null]"},
      {"{a: 1, b_2: [x_y: 1]}", nullptr},
      {"{a: 1, b_2: 2}", R"({"a": 1, "b_2": 2})"},
      {"[1, 2,]", "[1, 2]"},
      {"[+1, 1_000]", "[1, 1000]"},
      {"{\"a\": 1\n\"b\": [2] 'c': \"d\"}", R"({"a": 1
,"b": [2] ,"c": "d"})"},
      {"{\"a\": 1 , }", R"({"a": 1 })"},
      {"{\"a\": [1, {\"b\": 2]}", R"({"a": [1, {"b": 2}]})"},
      {"[\"a\tb\r\n\x01\"]", R"(["a\tb\r\n\u0001"])"},
      {R"(["\d \x41 \u00 \u0041"])", R"(["\\d \u0041 \\u00 \u0041"])"},
  };
  for (const auto& [text, json] : kCases) {
    if (json == nullptr) {
      EXPECT_TRUE(read(text).starts_with("stopped")) << text;
    } else {
      EXPECT_EQ(read(text), json);
      EXPECT_FALSE(nlohmann::json::parse(json, nullptr, false).is_discarded()) << json;
    }
  }
}

TEST(CallJson, StopsAtWhatHasNone) {
  for (const char* text :
       {"{\"a\": \"x \"y\" z\"}", "[oops]", "{\"a\" 1}", "[1 2]", "[,]", "{\"a\":,}", "[1}", "{]",
        "[01]", "[1.]", "[+-1]", "[_1]", "{\"a\": }", "[\"a\" \"b\"]", "{\"a\": 1\"b\": 2}"}) {
    EXPECT_TRUE(read(text).starts_with("stopped")) << text << ": " << read(text);
  }
}

TEST(CallJson, AddsClosingBracketsAlone) {
  EXPECT_EQ(read("{\"a\": {\"b\": [1, 2", true), R"({"a": {"b": [1, 2]}})");
  EXPECT_EQ(read("{\"a\": \"x\",", true), R"({"a": "x"})");
  EXPECT_EQ(read("{", true), "{}");
  for (const char* text : {"{\"a", "{\"a\"", "{\"a\":", "{\"a\": \"x", "[tru", "[1.", "{a", ""}) {
    EXPECT_EQ(read(text, true), "no") << text;
  }
}

TEST(CallJson, EndsAtItsBracketAndHasAFloor) {
  CallJson json;
  EXPECT_EQ(json.read("{\"a\": 1} and more"), CallJson::State::Whole);
  EXPECT_EQ(json.at(), 8u);
  CallJson deep;
  EXPECT_EQ(deep.read(std::string(100'000, '[')), CallJson::State::Stopped);
  EXPECT_EQ(deep.at(), kMaxCallJsonDepth);
}

// Any bytes: what is whole is JSON, and no cut matters.
TEST(CallJson, WhatIsWholeIsJson) {
  const std::string_view kBytes = "{}[]\"':,\\ntrueTNoneu0041x.-\n a";
  std::mt19937 random(5);
  int whole = 0;
  for (int round = 0; round < 60'000; ++round) {
    std::string text = random() % 2 == 0 ? "{" : "[";
    for (int n = static_cast<int>(random() % 14); n > 0; --n)
      text += kBytes[random() % kBytes.size()];
    CallJson json;
    json.read(text);
    if (!json.close()) continue;
    ++whole;
    ASSERT_FALSE(nlohmann::json::parse(json.json(), nullptr, false).is_discarded())
        << text << " -> " << json.json();
  }
  EXPECT_GT(whole, 500);
}

TEST(CallJson, CompactsAndKnowsWords) {
  EXPECT_EQ(compact_json(R"({ "a b" : [1,  2], "c": "\" x" })"), R"({"a b":[1,2],"c":"\" x"})");
  EXPECT_EQ(json_of_word("None"), "null");
  EXPECT_EQ(json_of_word("TRUE"), "true");
  EXPECT_EQ(json_of_word("-1.5e9"), "-1.5e9");
  EXPECT_EQ(json_of_word("1."), "");
  EXPECT_EQ(json_of_word("none"), "");
}

}  // namespace
}  // namespace ktx::text
