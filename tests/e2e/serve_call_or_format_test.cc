// Tools beside a format, where no call is forced: the model calls a tool, or its answer follows the
// format. From models that say a call or an answer (scripted_model.h), and a small gpt-oss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const Json kCity = Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}},
                                   "required": ["city"], "additionalProperties": false})");
const Json kNote = Json::parse(R"({"type": "object", "properties": {"note": {"type": "string"}},
                                   "required": ["note"], "additionalProperties": false})");
const Json kNested = {
    {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", kCity}}}}};
constexpr const char* kArguments = "{\"city\": \"Rom\"}";

struct ServeCallOrFormat : ::testing::Test {
  ServerProcess& serve(const std::string& marker, const std::string& said) {
    const ScriptedModel model = {
        "{# " + marker + " #}{% for m in messages %}{{ m.content }}{% endfor %}<|go|>",
        pieces_of(said)};
    EXPECT_TRUE(write_scripted_model(dir.path("m.gguf"), model));
    const std::string plan = dir.path("m.ktxplan");
    const Finished run = run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", plan});
    EXPECT_EQ(run.status, 0) << run.err;
    server = std::make_unique<ServerProcess>(std::vector<std::string>{plan, "--max-batch", "2"});
    return *server;
  }
  // "content|name {arguments}|finish" of an answer to a request with tools and a format.
  static std::string ask(const ServerProcess& server, const Json& tools, const Json& format,
                         const std::string& question, bool stream) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", question}}}},
                       {"tools", tools},
                       {"response_format", format},
                       {"temperature", 0},
                       {"max_tokens", 200},
                       {"stream", stream}};
    const HttpAnswer answer = server.post("/v1/chat/completions", body.dump());
    if (answer.status != 200) return answer.body;
    std::string content, calls, finish;
    const auto take = [&](const Json& message, const Json& choice) {
      if (message.contains("content") && message["content"].is_string()) {
        content += message["content"].get<std::string>();
      }
      for (const Json& call : message.value("tool_calls", Json::array())) {
        const Json& function = call["function"];
        if (function.contains("name")) calls += "|" + function["name"].get<std::string>() + " ";
        calls += function.value("arguments", "");
      }
      if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
    };
    if (!stream) {
      const Json choice = answer.json()["choices"][0];
      take(choice["message"], choice);
    } else {
      for (const Json& event : answer.events()) {
        take(event["choices"][0]["delta"], event["choices"][0]);
      }
    }
    return content + calls + "|" + finish;
  }
  static Json format_of(const Json& schema) {
    return {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}};
  }

  const TempDir dir;
  std::unique_ptr<ServerProcess> server;
};

struct Form {
  const char* marker;
  const char* call;
  const char* answer;
};
// What looks like a call within the answer is a part of it.
const Form kForms[] = {
    {"<tool_call>",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\"}}\n</tool_call>",
     "{\"note\": \"<tool_call>{ } \"}"},
    {"[TOOL_CALLS]", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rom\"}",
     "{\"note\": \"[TOOL_CALLS]weather\"}"},
    {"\"parameters\": dictionary of argument name",
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rom\"}}",
     "{\"note\": \"<|python_tag|>\"}"},
    {"", "{\"tool_call\": {\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\"}}}",
     "{\"response\": {\"note\": \"a \\\"b\\\"\"}}"},
};

TEST_F(ServeCallOrFormat, ACallComesInEachForm) {
  for (const Form& form : kForms) {
    serve(form.marker, form.call);
    for (const Json& format : {format_of(kNote), Json{{"type", "json_object"}}}) {
      for (const bool stream : {false, true}) {
        EXPECT_EQ(ask(*server, kNested, format, "Go.", stream),
                  std::string("|weather ") + kArguments + "|tool_calls")
            << form.marker << format;
      }
    }
  }
}

TEST_F(ServeCallOrFormat, AnAnswerFollowsTheFormat) {
  for (const Form& form : kForms) {
    serve(form.marker, form.answer);
    std::string want = form.answer;
    if (want.starts_with("{\"response\"")) want = "{\"note\": \"a \\\"b\\\"\"}";
    for (const bool stream : {false, true}) {
      EXPECT_EQ(ask(*server, kNested, format_of(kNote), "Go.", stream), want + "|stop")
          << form.marker;
    }
  }
}

TEST_F(ServeCallOrFormat, EveryProtocolHasBoth) {
  serve(kForms[0].marker, kForms[0].call);
  const Json flat = {{{"type", "function"}, {"name", "weather"}, {"parameters", kCity}}};
  const Json anthropic = {{{"name", "weather"}, {"input_schema", kCity}}};
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", kNote}};
  const Json messages = {{{"role", "user"}, {"content", "Go."}}};
  struct Protocol {
    const char* path;
    Json body;
    const char *name, *arguments;
  };
  const Protocol kProtocols[] = {
      {"/v1/responses",
       {{"input", "Go."}, {"tools", flat}, {"text", {{"format", format}}}},
       "/output/0/name",
       "/output/0/arguments"},
      {"/v1/messages",
       {{"messages", messages},
        {"max_tokens", 200},
        {"tools", anthropic},
        {"output_config", {{"format", format}}}},
       "/content/0/name",
       "/content/0/input"},
      {"/api/chat",
       {{"messages", messages}, {"tools", kNested}, {"format", kNote}, {"stream", false}},
       "/message/tool_calls/0/function/name",
       "/message/tool_calls/0/function/arguments"},
  };
  for (const auto& [path, asked, name, arguments] : kProtocols) {
    Json body = asked;
    body["temperature"] = 0;
    if (path == std::string_view("/api/chat")) body["options"] = {{"temperature", 0}};
    const HttpAnswer answer = server->post(path, body.dump());
    const Json json = Json::parse(answer.body, nullptr, false);
    const Json::json_pointer at(arguments);
    ASSERT_TRUE(json.is_object() && json.contains(at)) << path << answer.body;
    EXPECT_EQ(json[Json::json_pointer(name)], "weather");
    const Json said = json[at];
    EXPECT_EQ(said.is_string() ? Json::parse(said.get<std::string>()) : said,
              Json::parse(kArguments));
  }
}

TEST_F(ServeCallOrFormat, AWrongFormatIsNamed) {
  serve(kForms[2].marker, kForms[2].call);
  const Json bad = format_of({{"$dynamicRef", "#a"}});
  EXPECT_THAT(ask(*server, kNested, bad, "Go.", false),
              HasSubstr("'response_format.json_schema.schema': schema at #: keyword"));
}

TEST_F(ServeCallOrFormat, HarmonysCallsAreMessagesOfTheirOwn) {
  const std::string plan = dir.path("m.ktxplan");
  const Finished run = run_program({ktx_compile(), "-q", model_gguf("gpt_oss"), "-o", plan});
  ASSERT_EQ(run.status, 0) << run.err;
  const ServerProcess gpt_oss({plan, "--max-batch", "2"});
  Json tools = kNested;
  tools[0]["function"]["name"] = "get_weather";
  tools[0]["function"]["description"] = "Get the weather in a city.";
  Json schema = {{"type", "object"},
                 {"properties", {{"a", {{"type", "integer"}, {"maximum", 99}}}}},
                 {"required", {"a"}},
                 {"additionalProperties", false}};
  for (const bool stream : {false, true}) {
    EXPECT_EQ(ask(gpt_oss, tools, format_of(schema), "What is the weather in Paris?", stream),
              "|get_weather {\"city\": \"Paris\"}|tool_calls");
    const std::string sum = ask(gpt_oss, tools, format_of(schema), "What is 7 + 12?", stream);
    const Json value = Json::parse(sum.substr(0, sum.find('|')), nullptr, false);
    ASSERT_TRUE(value.is_object()) << sum;
    EXPECT_TRUE(value["a"].is_number_integer()) << sum;
    EXPECT_TRUE(sum.ends_with("|stop")) << sum;
  }
}

}  // namespace
}  // namespace ktx::testing
