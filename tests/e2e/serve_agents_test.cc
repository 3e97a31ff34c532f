// What coding agents and official clients send over HTTP, from a model that says what the test
// wants (scripted_model.h): tools of every kind, reasoning, headers of requests, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Variables of the template become a part of the prompt, so that its size shows their values.
constexpr const char* kTemplate =
    "{# <think> <tool_call> #}{% for m in messages %}{{ m.role }}: {{ m.reasoning_content | "
    "default('') }}{{ m.content }}\n{% endfor %}{{ v | default('') }}{% if enable_thinking is "
    "defined and not enable_thinking %}no{% endif %}<|go|>";
constexpr const char* kSaid =
    "<think>hm</think>I do.\n<tool_call>\n{\"name\": \"raw__sql\", \"arguments\": {\"input\": "
    "\"SELECT 1\"}}\n</tool_call>";

class ServeAgents : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempDir;
    const std::string gguf = folder_->path("m.gguf");
    ASSERT_TRUE(write_scripted_model(gguf, {kTemplate, pieces_of(kSaid)}));
    ASSERT_EQ(run_program({ktx_compile(), "-q", gguf, "-o", plan()}).status, 0);
    server_ = new ServerProcess({plan(), "--temp", "0", "-t", "1", "--max-batch", "2"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static std::string plan() { return folder_->path("m.ktxplan"); }

  static HttpAnswer post(const char* path, const Json& body) {
    return server_->post(path, body.dump());
  }
  static Json answer(const char* path, const Json& body) {
    const HttpAnswer got = post(path, body);
    EXPECT_EQ(got.status, 200) << got.body;
    return Json::parse(got.body);
  }
  static int64_t input_tokens(const Json& more) {
    Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
    body.update(more);
    return answer("/v1/messages/count_tokens", body)["input_tokens"];
  }

  static TempDir* folder_;
  static ServerProcess* server_;
};
TempDir* ServeAgents::folder_ = nullptr;
ServerProcess* ServeAgents::server_ = nullptr;

const Json kUser = Json::array({{{"role", "user"}, {"content", "Hi"}}});
// The tools of a default request of Codex CLI, and a custom tool within a namespace.
const Json kCodexTools = Json::array(
    {{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}, {"strict", false}},
     {{"type", "web_search"}, {"external_web_access", true}},
     {{"type", "local_shell"}},
     {{"type", "image_generation"}, {"output_format", "png"}},
     {{"type", "namespace"},
      {"name", "raw"},
      {"description", "d"},
      {"tools", Json::array({{{"type", "custom"}, {"name", "sql"}, {"description", "Asks."}}})}}});

TEST_F(ServeAgents, ResponsesHaveCallsAsTheirToolIsKnownToTheClient) {
  const Json body = {{"input", "Hi"}, {"tools", kCodexTools}, {"max_output_tokens", 300}};
  const HttpAnswer whole = post("/v1/responses", body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.headers.at("x-ktx-note"), "tools[3]: image generation is left out") << "the last";
  const Json output = Json::parse(whole.body)["output"];
  ASSERT_EQ(output.size(), 3u) << output;
  EXPECT_EQ(output[0]["content"][0]["text"], "hm");
  EXPECT_EQ(output[1]["content"][0]["text"], "I do.");
  EXPECT_EQ(output[2]["type"], "custom_tool_call");
  EXPECT_EQ(output[2]["name"], "sql");
  EXPECT_EQ(output[2]["namespace"], "raw");
  EXPECT_EQ(output[2]["input"], "SELECT 1");

  Json streamed = body;
  streamed["stream"] = true;
  std::vector<std::string> types;
  Json last;
  for (const auto& event : post("/v1/responses", streamed).events()) {
    if (types.empty() || types.back() != event["type"]) types.push_back(event["type"]);
    if (event["type"] == "response.reasoning_text.done") {
      EXPECT_EQ(event["text"], "hm");
    }
    last = event;
  }
  EXPECT_THAT(
      types,
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(last["response"]["output"][2]["input"], "SELECT 1");
}

TEST_F(ServeAgents, ResponsesEchoTheRequestAndRefuseWhatIsStored) {
  const Json body = {{"input", "Hi"},
                     {"instructions", "Be brief."},
                     {"metadata", {{"a", "b"}}},
                     {"temperature", 0.25},
                     {"max_output_tokens", 40},
                     {"parallel_tool_calls", false},
                     {"prompt_cache_key", "k"},
                     {"safety_identifier", "s"},
                     {"reasoning", {{"effort", "low"}}},
                     {"text", {{"verbosity", "low"}}},
                     {"tools", kCodexTools},
                     {"previous_response_id", nullptr},
                     {"background", false},
                     {"store", true}};
  const Json said = answer("/v1/responses", body);
  for (const char* field : {"instructions", "metadata", "temperature", "max_output_tokens", "tools",
                            "parallel_tool_calls", "prompt_cache_key", "safety_identifier"}) {
    EXPECT_EQ(said[field], body[field]) << field;
  }
  EXPECT_EQ(said["reasoning"]["effort"], "low");
  EXPECT_EQ(said["text"]["verbosity"], "low");
  EXPECT_EQ(said["store"], false) << "what is true, not what was asked for";
  const std::pair<const char*, Json> kStored[] = {{"previous_response_id", "resp_1"},
                                                  {"conversation", "conv_1"},
                                                  {"conversation", {{"id", "conv_1"}}},
                                                  {"prompt", {{"id", "pmpt_1"}}},
                                                  {"background", true}};
  for (const auto& [field, value] : kStored) {
    const HttpAnswer refused = post("/v1/responses", {{"input", "Hi"}, {field, value}});
    EXPECT_EQ(refused.status, 400) << field;
    EXPECT_EQ(refused.json()["error"]["param"], field);
  }
}

TEST_F(ServeAgents, ChatHasCustomToolsWholeAndStreamed) {
  Json body = {{"messages", kUser},
               {"max_tokens", 300},
               {"tools", Json::array({{{"type", "custom"}, {"custom", {{"name", "raw__sql"}}}}})}};
  const Json call = answer("/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "custom");
  EXPECT_EQ(call["custom"], Json({{"name", "raw__sql"}, {"input", "SELECT 1"}}));
  body["stream"] = true;
  std::string name, input;
  for (const auto& event : post("/v1/chat/completions", body).events()) {
    const auto& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    name += delta["tool_calls"][0]["custom"].value("name", "");
    input += delta["tool_calls"][0]["custom"].value("input", "");
  }
  EXPECT_EQ(name + ": " + input, "raw__sql: SELECT 1");
}

TEST_F(ServeAgents, ThinkingIsAsTheModelDoesUnlessTheRequestSaysOtherwise) {
  const auto ask = [](Json thinking) {
    return answer("/v1/messages",
                  {{"messages", kUser}, {"max_tokens", 300}, {"thinking", thinking}});
  };
  const Json plain = ask({{"type", "adaptive"}})["content"];
  EXPECT_EQ(plain[0], Json({{"type", "thinking"}, {"thinking", "hm"}, {"signature", ""}}));
  EXPECT_EQ(plain[1]["text"].get<std::string>().substr(0, 5), "I do.");
  const Json hidden = ask({{"type", "adaptive"}, {"display", "omitted"}})["content"];
  EXPECT_EQ(hidden[0]["thinking"], "");
  EXPECT_NE(hidden[0]["signature"], "");
  // What is not shown comes back in the signature.
  const auto with = [](const Json& thinking) {
    return input_tokens(
        {{"messages",
          {{{"role", "user"}, {"content", "Hi"}},
           {{"role", "assistant"}, {"content", {thinking, {{"type", "text"}, {"text", "x"}}}}},
           {{"role", "user"}, {"content", "Hi"}}}}});
  };
  EXPECT_EQ(with(hidden[0]), with(plain[0]));
  EXPECT_EQ(input_tokens({{"thinking", {{"type", "disabled"}}}}), input_tokens(Json::object()) + 2);
}

TEST_F(ServeAgents, TheHeaderOfARequestDoesNotCostThePrefixCache) {
  std::string prompt = "You are a careful helper. ";
  for (int i = 0; i < 4; ++i) prompt += prompt;
  const auto cached = [&](const char* header) {
    const Json usage = answer(
        "/v1/messages",
        {{"messages", kUser},
         {"max_tokens", 2},
         {"system",
          {{{"type", "text"}, {"text", header}}, {{"type", "text"}, {"text", prompt}}}}})["usage"];
    return usage["cache_read_input_tokens"].get<int64_t>() * 10 >
           (usage["input_tokens"].get<int64_t>() +
            usage["cache_read_input_tokens"].get<int64_t>()) *
               9;
  };
  cached("x-vendor-billing-header: cch=1;");
  EXPECT_TRUE(cached("x-vendor-billing-header: cch=2;"));
  EXPECT_FALSE(cached("cch=3"));
  const auto chat = [&](const std::string& header) {
    return answer(
        "/v1/chat/completions/input_tokens",
        {{"messages", {{{"role", "system"}, {"content", header + "Be brief."}}, kUser[0]}}});
  };
  EXPECT_EQ(chat("x-request-id: 7\n"), chat(""));
}

TEST_F(ServeAgents, VariablesOfTheTemplateAreTakenInEveryProtocol) {
  const Json chat = {{"messages", kUser}};
  const Json kwargs = {{"v", "12345678"}};
  const struct {
    const char* path;
    Json body;
    const char* tokens;
  } kCases[] = {
      {"/v1/chat/completions/input_tokens", chat, "/input_tokens"},
      {"/v1/responses/input_tokens", {{"input", "Hi"}}, "/input_tokens"},
      {"/v1/messages/count_tokens", chat, "/input_tokens"},
      {"/apply-template", chat, "/tokens"},
      {"/api/chat",
       {{"messages", kUser}, {"stream", false}, {"options", {{"num_predict", 1}}}},
       "/prompt_eval_count"},
      {"/api/generate",
       {{"prompt", "Hi"}, {"stream", false}, {"options", {{"num_predict", 1}}}},
       "/prompt_eval_count"},
  };
  for (const auto& [path, body, tokens] : kCases) {
    const Json::json_pointer at(tokens);
    Json more = body;
    more["chat_template_kwargs"] = kwargs;
    EXPECT_EQ(answer(path, more)[at].get<int64_t>(), answer(path, body)[at].get<int64_t>() + 8)
        << path;
  }
}

TEST_F(ServeAgents, OllamasAnswersTellLogprobsAndTheirContext) {
  const Json body = {{"prompt", "Hi"}, {"logprobs", true}, {"top_logprobs", 2}, {"stream", false}};
  const Json said = answer("/api/generate", body);
  ASSERT_TRUE(said["logprobs"].is_array()) << said;
  EXPECT_EQ(said["logprobs"].size() + 1, said["eval_count"].get<size_t>()) << "the end has none";
  EXPECT_EQ(said["logprobs"][0]["top_logprobs"].size(), 2u);
  const auto context = said["context"].get<std::vector<int32_t>>();
  EXPECT_GT(context.size(), said["prompt_eval_count"].get<size_t>());
  Json next = {{"prompt", "On"}, {"context", context}, {"stream", true}};
  size_t evaluated = 0;
  for (const auto& line : post("/api/generate", next).events()) {
    evaluated = line.value("prompt_eval_count", evaluated);
  }
  EXPECT_EQ(evaluated, context.size() + said["prompt_eval_count"].get<size_t>());
  next["context"] = {1000000};
  EXPECT_THAT(post("/api/generate", next).body, HasSubstr("no token of this model"));
  const Json chat =
      answer("/api/chat", {{"messages", kUser}, {"logprobs", true}, {"stream", false}});
  EXPECT_FALSE(chat["logprobs"].empty());
  EXPECT_FALSE(chat.contains("context"));
}

TEST_F(ServeAgents, ResponsesHaveTheLogprobsThatAreToBeIncluded) {
  Json body = {{"input", "Hi"},
               {"max_output_tokens", 24},
               {"include", {"message.output_text.logprobs"}},
               {"top_logprobs", 2}};
  const Json part = answer("/v1/responses", body)["output"].back()["content"][0];
  ASSERT_FALSE(part.value("logprobs", Json()).empty()) << part;
  EXPECT_EQ(part["logprobs"][0]["top_logprobs"].size(), 2u);
  std::string tokens;
  for (const Json& token : part["logprobs"]) {
    tokens += token["token"].get<std::string>();
    EXPECT_LE(token["logprob"].get<double>(), 0);
  }
  EXPECT_NE(tokens.find(part["text"].get<std::string>()), tokens.npos) << tokens;
  body["stream"] = true;
  const auto whole = nlohmann::json::parse(part["logprobs"].dump());
  nlohmann::json streamed = nlohmann::json::array(), done;
  for (const nlohmann::json& event : post("/v1/responses", body).events()) {
    if (event["type"] == "response.output_text.done") done = event["logprobs"];
    if (event["type"] != "response.output_text.delta") continue;
    streamed.insert(streamed.end(), event["logprobs"].begin(), event["logprobs"].end());
  }
  EXPECT_EQ(done, whole);
  EXPECT_EQ(streamed[0], whole[0]);
  body.erase("include");
  body["stream"] = false;
  EXPECT_FALSE(answer("/v1/responses", body)["output"].back()["content"][0].contains("logprobs"));
}

TEST_F(ServeAgents, ModelsHaveAnthropicsFormForItsClients) {
  const std::string version = "anthropic-version: 2023-06-01\r\n";
  const Json list = server_->get("/v1/models", version).json();
  ASSERT_EQ(list["data"].size(), 1u) << list;
  const Json& model = list["data"][0];
  EXPECT_EQ(model["type"], "model");
  EXPECT_EQ(model["created_at"].get<std::string>().back(), 'Z');
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(list["first_id"], model["id"]);
  EXPECT_EQ(list["last_id"], model["id"]);
  const std::string id = model["id"];
  EXPECT_EQ(server_->get("/v1/models/" + id, version).json(), model);
  const HttpAnswer missing = server_->get("/v1/models/zz", version);
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["type"], "not_found_error");
  EXPECT_EQ(missing.json()["request_id"], missing.headers.at("request-id"));
  EXPECT_EQ(server_->get("/v1/models").json()["object"], "list");
}

TEST_F(ServeAgents, ErrorsOfMessagesHaveAnthropicsForm) {
  const TempDir folder;
  folder.write("keys", "one requests=1\n");
  const ServerProcess strict(
      {plan(), "-t", "1", "--api-key-file", folder.path("keys"), "--max-body", "4KiB"});
  const std::string key = "X-Api-Key: one\r\n";
  const Json good = {{"messages", kUser}, {"max_tokens", 1}};
  Json large = good;
  large["system"] = std::string(8000, 'x');
  ASSERT_EQ(strict.post("/v1/messages", good.dump(), key).status, 200);
  const struct {
    HttpAnswer answer;
    int status;
    const char* type;
  } kCases[] = {
      {strict.post("/v1/messages", good.dump()), 401, "authentication_error"},
      {strict.post("/v1/messages", good.dump(), key), 429, "rate_limit_error"},
      {strict.post("/v1/messages", large.dump(), key), 413, "request_too_large"},
      {strict.post("/v1/messages/batches", good.dump(), key), 404, "not_found_error"},
      {strict.get("/v1/messages", key), 405, "invalid_request_error"},
      {post("/v1/messages", {{"messages", kUser}}), 400, "invalid_request_error"},
  };
  for (const auto& [got, status, type] : kCases) {
    EXPECT_EQ(got.status, status) << got.body;
    EXPECT_EQ(got.json()["type"], "error") << got.body;
    EXPECT_EQ(got.json()["error"]["type"], type) << got.body;
    ASSERT_EQ(got.headers.count("request-id"), 1u) << got.body;
    EXPECT_EQ(got.json()["request_id"], got.headers.at("request-id"));
  }
  EXPECT_TRUE(
      strict.post("/v1/chat/completions", large.dump(), key).json()["error"].contains("param"))
      << "others have OpenAI's form";
}

TEST_F(ServeAgents, AMisspeltVariableIsNamedAtTheStart) {
  setenv("KTX_SERVE_MAX_BACTH", "4", 1);
  setenv("KTX_SERVE_PORT_8080_TCP", "tcp://10.0.0.1:8080", 1);  // of Kubernetes
  const ServerProcess server({plan(), "-t", "1"});
  unsetenv("KTX_SERVE_MAX_BACTH");
  unsetenv("KTX_SERVE_PORT_8080_TCP");
  EXPECT_THAT(server.log(), HasSubstr("KTX_SERVE_MAX_BACTH is no option and has no effect; did you "
                                      "mean KTX_SERVE_MAX_BATCH?"));
  EXPECT_THAT(server.log(), Not(HasSubstr("TCP")));
}

}  // namespace
}  // namespace ktx::testing
