// Constrained answers in every protocol: the requested form, or a 400 that names the field;
// never free text. schema_check.h validates values against their schema.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/unit/text/grammar/schema_check.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// As pydantic writes a nested model.
const char* const kTrip = R"({
  "$defs": {"Kind": {"enum": ["fox", "hare"], "title": "Kind", "type": "string"},
            "Place": {"properties": {"city": {"maxLength": 8, "title": "City", "type": "string"},
                                     "zip": {"anyOf": [{"type": "integer"}, {"type": "null"}],
                                             "default": null, "title": "Zip"}},
                      "required": ["city"], "title": "Place", "type": "object"}},
  "properties": {"kind": {"$ref": "#/$defs/Kind"}, "start": {"$ref": "#/$defs/Place"},
                 "stops": {"items": {"$ref": "#/$defs/Place"}, "maxItems": 2, "type": "array"}},
  "required": ["kind", "start", "stops"], "title": "Trip", "type": "object"})";
const Json kMessages = Json::parse(R"([{"role": "user", "content": "Tell me about a fox."}])");
// Hot, so that what is not forbidden comes.
const Json kSampling = {{"temperature", 1.3}, {"seed", 3}};

class ServeConstraints : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const std::string plan = dir_->path("m.ktxplan");
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = new ServerProcess({plan, "--max-batch", "4"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static HttpAnswer ask(const std::string& path, Json body) {
    if (path == "/v1/messages" || path == "/v1/chat/completions" || path == "/api/chat") {
      body["messages"] = kMessages;
    } else if (path == "/v1/responses") {
      body["input"] = "Tell me about a fox.";
    } else {
      body["prompt"] = "Once";
    }
    body["stream"] = body.value("stream", false);
    if (path.starts_with("/api/")) {
      body["options"] = kSampling;
      body["options"]["num_predict"] = body.value("max_tokens", 600);
    } else {
      body.update(kSampling);
      const char* limit = path == "/v1/responses" ? "max_output_tokens" : "max_tokens";
      if (!body.contains(limit)) body[limit] = 600;
    }
    return server_->post(path, body.dump());
  }
  // What the answer says, or the whole body.
  static std::string said(const std::string& path, const HttpAnswer& answer) {
    const char* const kPlaces[][2] = {{"/v1/chat/completions", "/choices/0/message/content"},
                                      {"/v1/completions", "/choices/0/text"},
                                      {"/v1/responses", "/output/0/content/0/text"},
                                      {"/v1/messages", "/content/0/text"},
                                      {"/api/chat", "/message/content"},
                                      {"/api/generate", "/response"}};
    const Json json = Json::parse(answer.body, nullptr, false);
    for (const auto& [name, place] : kPlaces) {
      const Json::json_pointer at(place);
      if (path == name && json.is_object() && json.contains(at)) return json[at];
    }
    return answer.body;
  }
  static void expect_valid(const Json& schema, const std::string& text, const std::string& what) {
    const Json value = Json::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << what << ": " << text;
    EXPECT_EQ(text::schema_violation(schema, schema, value), "") << what << ": " << text;
  }

  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* ServeConstraints::dir_ = nullptr;
ServerProcess* ServeConstraints::server_ = nullptr;

TEST_F(ServeConstraints, EveryFieldForASchemaIsHonoured) {
  const Json schema = Json::parse(kTrip);
  const Json format = {{"type", "json_schema"}, {"name", "trip"}, {"schema", schema}};
  const Json nested = {{"type", "json_schema"},
                       {"json_schema", {{"name", "trip"}, {"schema", schema}}}};
  const std::pair<const char*, Json> kCases[] = {
      {"/v1/chat/completions", {{"response_format", nested}}},
      {"/v1/chat/completions",
       {{"response_format", {{"type", "json_object"}, {"schema", schema}}}}},
      {"/v1/chat/completions", {{"guided_json", schema}}},
      {"/v1/chat/completions", {{"structured_outputs", {{"json", schema}}}}},
      {"/v1/completions", {{"guided_json", schema.dump()}}},
      {"/v1/completions", {{"json_schema", schema}}},
      {"/v1/responses", {{"text", {{"format", format}}}}},
      {"/v1/messages", {{"output_config", {{"format", format}}}}},
      {"/v1/messages", {{"output_format", format}}},
      {"/api/chat", {{"format", schema}}},
      {"/api/generate", {{"format", schema}}},
      {"/api/chat", {{"guided_json", schema}}},
  };
  for (const auto& [path, body] : kCases) {
    const std::string what = path + body.begin().key();
    const HttpAnswer answer = ask(path, body);
    ASSERT_EQ(answer.status, 200) << what << answer.body;
    expect_valid(schema, said(path, answer), what);
  }
}

TEST_F(ServeConstraints, ChoicesPatternsAndGrammarsAreHonoured) {
  const std::pair<Json, const char*> kCases[] = {
      {{{"guided_choice", {"one word"}}}, "one word"},
      {{{"structured_outputs", {{"choice", {"one word"}}}}}, "one word"},
      {{{"guided_regex", "a{3}\\.b?c"}, {"ignore_eos", true}}, "aaa.c|aaa.bc"},
      {{{"response_format", {{"type", "regex"}, {"value", "^x\"y$"}}}}, "x\"y"},
      {{{"guided_grammar", "root ::= \"é\" [0-1]"}}, "é0|é1"},
      {{{"ebnf", "root ::= \"b\"? end\nend ::= \"a\""}, {"ignore_eos", true}}, "a|ba"},
  };
  for (const auto& [body, wanted] : kCases) {
    const HttpAnswer answer = ask("/v1/chat/completions", body);
    ASSERT_EQ(answer.status, 200) << body << answer.body;
    const std::string text = said("/v1/chat/completions", answer);
    EXPECT_NE(fmt::format("|{}|", wanted).find("|" + text + "|"), std::string::npos)
        << body << text;
    EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "stop") << answer.body;
  }
}

TEST_F(ServeConstraints, WhatCannotBeKeptIsRefusedInEveryProtocol) {
  const Json bad = Json::parse(R"({"properties": {"a": {"$dynamicRef": "#a"}}})");
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", bad}};
  const Json tool = {{"type", "function"},
                     {"name", "f"},
                     {"input_schema", bad},
                     {"parameters", bad},
                     {"function", {{"name", "f"}, {"parameters", bad}}}};
  const char* const kAt = "schema at #/properties/a: keyword '$dynamicRef' is not supported";
  const std::tuple<const char*, Json, std::string> kCases[] = {
      {"/v1/chat/completions", {{"response_format", format}}, "'response_format.schema': "},
      {"/v1/chat/completions",
       {{"tools", {tool}}, {"tool_choice", "required"}},
       "'tools[0].function.parameters': "},
      {"/v1/completions", {{"guided_json", bad}}, "'guided_json': "},
      {"/v1/responses", {{"text", {{"format", format}}}}, "'text.format.schema': "},
      {"/v1/responses", {{"tools", {tool}}, {"tool_choice", "any"}}, "'tools[0].parameters': "},
      {"/v1/messages",
       {{"output_config", {{"format", format}}}},
       "'output_config.format.schema': "},
      {"/v1/messages",
       {{"tools", {{{"name", "f"}, {"input_schema", bad}}}}, {"tool_choice", {{"type", "any"}}}},
       "'tools[0].input_schema': "},
      {"/api/chat", {{"format", bad}}, "'format': "},
      {"/api/generate", {{"format", bad}}, "'format': "},
  };
  for (const auto& [path, body, field] : kCases) {
    const HttpAnswer answer = ask(path, body);
    EXPECT_EQ(answer.status, 400) << path << body;
    EXPECT_THAT(answer.body, HasSubstr(Json(field + kAt).dump().substr(1, field.size() + 40)))
        << path << body;
  }
  const std::pair<const char*, Json> kMore[] = {
      {"/v1/responses", {{"text", {{"format", "json"}}}}},
      {"/v1/chat/completions", {{"response_format", {{"type", "json_schema"}}}}},
      {"/v1/chat/completions", {{"functions", {{{"name", "f"}}}}}},
      {"/v1/chat/completions", {{"function_call", {{"name", "f"}}}}},
      {"/v1/messages", {{"output_config", {{"format", {{"type", "yaml"}}}}}}},
      {"/v1/messages", {{"tools", {{{"name", "f"}}}}, {"tool_choice", {{"type", "tool"}}}}},
      {"/v1/messages",
       {{"tools", {{{"name", "f"}}}}, {"tool_choice", {{"type", "tool"}, {"name", "g"}}}}},
      {"/api/chat", {{"format", "json"}, {"grammar", "root ::= \"a\""}}},
      {"/api/chat", {{"format", "yaml"}}},
  };
  for (const auto& [path, body] : kMore) {
    EXPECT_EQ(ask(path, body).status, 400) << path << body;
  }
}

TEST_F(ServeConstraints, ForcedCallsAreValidInEveryProtocol) {
  const Json trip = Json::parse(kTrip);
  Json other = trip;  // another Kind of the same name
  other["$defs"]["Kind"] = {{"type", "boolean"}};
  const std::pair<std::string, Json> kTools[] = {
      {"a.trip", trip}, {"b \"trip\" 你", other}, {"now", Json::object()}};
  for (const auto& [chosen, schema] : kTools) {
    Json nested = Json::array(), flat = Json::array(), anthropic = Json::array();
    for (const auto& [name, parameters] : kTools) {
      nested.push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}});
      flat.push_back({{"type", "function"}, {"name", name}, {"parameters", parameters}});
      anthropic.push_back({{"name", name}, {"input_schema", parameters}});
    }
    const std::string where[] = {
        ask("/v1/chat/completions",
            {{"tools", nested},
             {"tool_choice", {{"type", "function"}, {"function", {{"name", chosen}}}}}})
            .body,
        ask("/v1/responses",
            {{"tools", flat}, {"tool_choice", {{"type", "function"}, {"name", chosen}}}})
            .body,
        ask("/v1/messages",
            {{"tools", anthropic}, {"tool_choice", {{"type", "tool"}, {"name", chosen}}}})
            .body,
        ask("/api/chat",
            {{"tools", nested},
             {"tool_choice", {{"type", "function"}, {"function", {{"name", chosen}}}}}})
            .body};
    const char* const kPlaces[][2] = {
        {"/choices/0/message/tool_calls/0/function/name",
         "/choices/0/message/tool_calls/0/function/arguments"},
        {"/output/0/name", "/output/0/arguments"},
        {"/content/0/name", "/content/0/input"},
        {"/message/tool_calls/0/function/name", "/message/tool_calls/0/function/arguments"}};
    for (size_t i = 0; i < std::size(where); ++i) {
      const Json json = Json::parse(where[i], nullptr, false);
      const Json::json_pointer name(kPlaces[i][0]), arguments(kPlaces[i][1]);
      ASSERT_TRUE(json.is_object() && json.contains(arguments)) << i << where[i];
      EXPECT_EQ(json[name], chosen);
      const Json said = json[arguments];
      expect_valid(schema, said.is_string() ? said.get<std::string>() : said.dump(), where[i]);
      if (schema.empty()) {
        EXPECT_THAT(said.is_string() ? said.get<std::string>() : said.dump(),
                    ::testing::AnyOf("{}", "{ }", ::testing::MatchesRegex("\\{[ \n\t]*\\}")));
      }
    }
  }
}

// As far as it came, whole and streamed; its text is empty, also before its name was there.
TEST_F(ServeConstraints, ACutCallIsAPartOfACall) {
  const Json tools = {
      {{"type", "function"}, {"function", {{"name", "trip"}, {"parameters", Json::parse(kTrip)}}}}};
  Json body = {{"tools", tools}, {"tool_choice", "required"}, {"max_tokens", 20}};
  const Json whole = ask("/v1/chat/completions", body).json()["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "length");
  EXPECT_TRUE(whole["message"]["content"].is_null()) << whole;
  const std::string arguments = whole["message"]["tool_calls"][0]["function"]["arguments"];
  EXPECT_TRUE(arguments.starts_with("{")) << arguments;
  body["stream"] = true;
  std::string streamed;
  for (const auto& event : ask("/v1/chat/completions", body).events()) {
    const Json delta = event["choices"].empty() ? Json() : Json(event["choices"][0]["delta"]);
    if (delta.contains("tool_calls")) streamed += delta["tool_calls"][0]["function"]["arguments"];
    EXPECT_TRUE(!delta.contains("content") || delta["content"].is_null() || delta["content"] == "")
        << delta;
  }
  EXPECT_EQ(streamed, arguments);
  body["stream"] = false;
  body["max_tokens"] = 2;
  EXPECT_EQ(ask("/v1/chat/completions", body).json()["choices"][0]["message"]["content"], "");

  const Json flat = {{{"type", "function"}, {"name", "trip"}, {"parameters", Json::parse(kTrip)}}};
  const Json response =
      ask("/v1/responses",
          {{"tools", flat}, {"tool_choice", "required"}, {"max_output_tokens", 20}})
          .json();
  EXPECT_EQ(response["status"], "incomplete") << response;
  EXPECT_EQ(response["output"][0]["status"], "incomplete") << response;
  EXPECT_EQ(response["output"][0]["type"], "function_call") << response;
}

}  // namespace
}  // namespace ktx::testing
