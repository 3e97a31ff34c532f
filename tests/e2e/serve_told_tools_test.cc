// Tools for models whose chat template knows none, templates by name, and text of requests that
// looks like a control token, over HTTP and in a chat; from a model that says what a test wants
// (scripted_model.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}"
    "{% endfor %}<|go|>";

Json weather_tools() {
  const Json schema = {
      {"type", "object"},
      {"properties", {{"city", {{"type", "string"}}}, {"days", {{"type", "integer"}}}}},
      {"required", {"city", "days"}}};
  return {{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", schema}}}}};
}

struct Told : ::testing::Test {
  // A server of a model that says `said`.
  ServerProcess& serve(const std::string& said, const std::string& chat_template = kPlain,
                       const std::vector<std::string>& options = {},
                       const std::string& tool_template = "") {
    const ScriptedModel model = {chat_template, pieces_of(said), {}, tool_template};
    EXPECT_TRUE(write_scripted_model(dir.path("m.gguf"), model));
    plan = dir.path("m.ktxplan");
    const Finished run = run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", plan});
    EXPECT_EQ(run.status, 0) << run.err;
    std::vector<std::string> args = {plan, "--max-batch", "2"};
    args.insert(args.end(), options.begin(), options.end());
    server = std::make_unique<ServerProcess>(args);
    return *server;
  }
  // "content|name {arguments}|finish" of an answer.
  std::string ask(Json body, bool stream) {
    if (!body.contains("messages")) body["messages"] = {{{"role", "user"}, {"content", "Go."}}};
    body["temperature"] = 0;
    if (!body.contains("max_tokens")) body["max_tokens"] = 200;
    body["stream"] = stream;
    const HttpAnswer answer = server->post("/v1/chat/completions", body.dump());
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
  std::string prompt(const Json& body) {
    const HttpAnswer answer = server->post("/apply-template", body.dump());
    return answer.status == 200 ? answer.json()["prompt"].get<std::string>() : answer.body;
  }

  const TempDir dir;
  std::string plan;
  std::unique_ptr<ServerProcess> server;
};

TEST_F(Told, AModelWithoutToolsCallsThemInTheGenericForm) {
  serve(
      "{\"tool_call\": {\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\", \"days\": 3}}}");
  for (const bool stream : {false, true}) {
    EXPECT_EQ(ask({{"tools", weather_tools()}}, stream),
              "|weather {\"city\": \"Rom\", \"days\": 3}|tool_calls");
  }
  const Json history = Json::parse(R"([
      {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Go."},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "weather", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "c", "content": "Sun."}])");
  const std::string text = prompt({{"messages", history}, {"tools", weather_tools()}});
  EXPECT_THAT(text, HasSubstr("system: Be kind.\n\nYou can call"));
  EXPECT_THAT(text, HasSubstr("\"name\":\"weather\""));
  EXPECT_THAT(text,
              HasSubstr("assistant: {\"tool_call\": {\"name\": \"weather\", \"arguments\": {}}}"));
  EXPECT_THAT(text, HasSubstr("user: The result of weather:\nSun."));
  // Without tools the prompt does not mention any.
  EXPECT_EQ(prompt({{"messages", {{{"role", "user"}, {"content", "Go."}}}}}), "user: Go.\n<|go|>");
}

TEST_F(Told, ASchemaThatNoGrammarKeepsIsNoReasonToRefuseTools) {
  serve("{\"response\": \"x\"}");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"p": {"type": "string", "pattern": "(a)\\1"}}}}}])");
  Json body = {
      {"messages", {{{"role", "user"}, {"content", "a"}}}}, {"tools", tools}, {"max_tokens", 4}};
  const HttpAnswer offered = server->post("/v1/chat/completions", body.dump());
  EXPECT_EQ(offered.status, 200) << offered.body;
  ASSERT_EQ(offered.headers.count("x-ktx-note"), 1u);
  EXPECT_THAT(offered.headers.at("x-ktx-note"), HasSubstr("#/properties/p: pattern"));
  body["tool_choice"] = "required";
  const HttpAnswer forced = server->post("/v1/chat/completions", body.dump());
  EXPECT_EQ(forced.status, 400);
  EXPECT_THAT(forced.body, HasSubstr("tools[0].function.parameters"));
}

TEST_F(Told, TheGenericFormHasTextsToo) {
  serve("{\"response\": \"Hello \\\"you\\\"\\n!\"}");
  for (const bool stream : {false, true}) {
    EXPECT_EQ(ask({{"tools", weather_tools()}}, stream), "Hello \"you\"\n!|stop");
    EXPECT_EQ(ask({{"tools", weather_tools()}, {"max_tokens", 6}}, stream).back(), 'h');
  }
}

TEST_F(Told, AFormCanBeChosen) {
  serve(
      "Well. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\", \"days\": 3}\n</tool_call>",
      kPlain, {"--tool-format", "hermes"});
  for (const bool stream : {false, true}) {
    EXPECT_EQ(ask({{"tools", weather_tools()}}, stream),
              "Well.|weather {\"city\": \"Rom\", \"days\": 3}|tool_calls");
    // Cut anywhere, nothing of the call's marks is text.
    for (int tokens = 2; tokens < 14; ++tokens) {
      const std::string said = ask({{"tools", weather_tools()}, {"max_tokens", tokens}}, stream);
      EXPECT_THAT(said, Not(HasSubstr("<"))) << tokens;
      EXPECT_THAT(said, Not(HasSubstr("\"name"))) << tokens;
    }
  }
  EXPECT_THAT(
      prompt({{"messages", {{{"role", "user"}, {"content", "Go."}}}}, {"tools", weather_tools()}}),
      HasSubstr("<tool_call>\n{\"name\": \"NAME\""));
}

TEST_F(Told, AFormThatCannotBeIsAnError) {
  serve("x");
  for (const auto& [name, message] : std::vector<std::pair<std::string, std::string>>{
           {"hermse", "did you mean 'hermes'"}, {"harmony", "needs a chat template"}}) {
    const Finished run =
        run_program({ktx_run(), "serve", plan, "--port", "0", "--tool-format", name});
    EXPECT_NE(run.status, 0);
    EXPECT_THAT(run.err, HasSubstr(message));
  }
  const ServerProcess off({plan, "--tool-format", "none"});
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Go."}}}},
                     {"tools", weather_tools()}};
  const HttpAnswer answer = off.post("/v1/chat/completions", body.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("--tool-format none"));
}

TEST_F(Told, ATemplateForToolsIsUsedWithThem) {
  serve("<tool_call>{\"name\": \"weather\"}</tool_call>", "plain {{ messages[0].content }}<|go|>",
        {},
        "<tool_call> {{ tools | map(attribute='function') | map(attribute='name') | join }}<|go|>");
  EXPECT_EQ(ask({{"tools", weather_tools()}}, false), "|weather {}|tool_calls");
  const Json messages = {{{"role", "user"}, {"content", "Go."}}};
  EXPECT_EQ(prompt({{"messages", messages}, {"tools", weather_tools()}}),
            "<tool_call> weather<|go|>");
  EXPECT_EQ(prompt({{"messages", messages}, {"tools", Json::array()}}), "plain Go.<|go|>");
  EXPECT_EQ(prompt({{"messages", messages}}), "plain Go.<|go|>");
}

// A user who writes a control token, or a tool that returns one, writes text.
TEST_F(Told, TextOfARequestIsNoControlToken) {
  serve("x");
  const auto tokens = [&](const ServerProcess& on, const std::string& content, const char* role) {
    Json messages = {{{"role", "user"}, {"content", "a"}}};
    messages.push_back({{"role", role}, {"content", content}, {"tool_call_id", "c"}});
    const Json body = {{"messages", messages}, {"continue_final_message", false}};
    return on.post("/v1/chat/completions/input_tokens", body.dump())
        .json()["input_tokens"]
        .get<int>();
  };
  const ServerProcess allowing({plan, "--allow-control-tokens"});
  for (const char* role : {"user", "system", "assistant", "tool"}) {
    EXPECT_EQ(tokens(*server, "<|stop|>", role) - tokens(*server, "", role), 8) << role;
    EXPECT_EQ(tokens(allowing, "<|stop|>", role) - tokens(allowing, "", role), 1) << role;
  }
  // Texts for embeddings are looked up.
  const auto embedded = [&](const ServerProcess& on) {
    return on.post("/v1/embeddings", R"({"input": "a<|stop|>"})")
        .json()["usage"]["prompt_tokens"]
        .get<int>();
  };
  EXPECT_EQ(embedded(*server) - embedded(allowing), 7);
  // A prompt as its author wrote it has them.
  const Json raw = {{"content", "<|stop|>"}};
  EXPECT_EQ(server->post("/tokenize", raw.dump()).json()["tokens"].size(), 1u);
  const auto chat = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {ktx_run(),  "generate", plan, "--chat", "--prompt",
                                     "<|stop|>", "-n",       "1",  "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return Json::parse(run_program(args).out)["prompt_ids"].size();
  };
  EXPECT_EQ(chat({}) - chat({"--allow-control-tokens"}), 7u);
}

TEST_F(Told, ATemplateCanBeChosenByName) {
  const std::string go = "{{ messages[0].content }}<|go|>";
  const ScriptedModel model = {"", pieces_of("Fine.")};
  ASSERT_TRUE(write_scripted_model(dir.path("m.gguf"), model));
  const std::string made = dir.path("m.ktxplan"), chatml = dir.path("c.ktxplan");
  const Finished compiled = run_program({ktx_compile(), dir.path("m.gguf"), "-o", made});
  EXPECT_THAT(compiled.err + compiled.out, HasSubstr("ktx-run generate " + made + " --prompt"));
  EXPECT_THAT(compiled.err + compiled.out, HasSubstr("--chat-template NAME (chatml, "));
  const Finished lacks = run_program({ktx_run(), "chat", made}, "Hi\n");
  EXPECT_EQ(lacks.status, 1);
  EXPECT_THAT(lacks.err, HasSubstr("--chat-template"));
  EXPECT_EQ(
      run_program({ktx_run(), "chat", made, "--temp", "0", "--chat-template", go}, "Hi\n").out,
      "Fine.\n");
  dir.write("t.jinja", go);
  EXPECT_EQ(run_program({ktx_run(), "generate", made, "--temp", "0", "--chat", "--prompt", "Hi",
                         "--chat-template-file", dir.path("t.jinja")})
                .out,
            "Fine.\n");
  const Finished wrong =
      run_program({ktx_run(), "chat", made, "--chat-template", "chatlm"}, "Hi\n");
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'chatml'"));
  const Finished both = run_program({ktx_run(), "chat", made, "--chat-template", "chatml",
                                     "--chat-template-file", dir.path("t.jinja")});
  EXPECT_EQ(both.status, 2);

  const Finished again =
      run_program({ktx_compile(), dir.path("m.gguf"), "-o", chatml, "--chat-template", "chatml"});
  EXPECT_THAT(again.err + again.out, HasSubstr("ktx-run chat " + chatml));
  const ServerProcess server({chatml});
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  EXPECT_EQ(server.post("/apply-template", body.dump()).json()["prompt"],
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace ktx::testing
