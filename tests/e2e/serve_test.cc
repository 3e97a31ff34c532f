// The server from its clients' view, with the small Qwen3 MoE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>

#include "tests/support/cpu_time.h"
#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kFox = "Tell me a story about a fox.";

json chat(const std::string& text, int max_tokens, const json& more = json::object()) {
  json body = {{"messages", json::array({{{"role", "user"}, {"content", text}}})},
               {"max_tokens", max_tokens},
               {"temperature", 0}};
  body.update(more);
  return body;
}

class Serve : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = new ServerProcess({plan(), "--slot-dir", dir_->path(), "--max-batch", "4"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static std::string plan() { return dir_->path("qwen3moe.ktxplan"); }
  static HttpAnswer ask(const json& body) {
    return server_->post("/v1/chat/completions", body.dump());
  }
  static std::string content(const HttpAnswer& answer) {
    const json body = answer.json();
    return body.contains("choices") ? body["choices"][0]["message"]["content"].get<std::string>()
                                    : answer.body;
  }
  // The server is well and nothing is left running.
  static void expect_idle() {
    // The last clients that left may not have been noticed yet.
    json stats;
    await([&] {
      stats = server_->get("/stats").json();
      return stats["requests_running"] == 0 && stats["requests_waiting"] == 0 &&
             stats["requests_ended_total"] == stats["requests_total"];
    });
    EXPECT_EQ(server_->get("/health").status, 200);
  }

  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* Serve::dir_ = nullptr;
ServerProcess* Serve::server_ = nullptr;

TEST_F(Serve, AnswersWhatGenerateAnswers) {
  const Finished alone = run_program({ktx_run(), "generate", plan(), "--chat", "--prompt", kFox,
                                      "--temp", "0", "-n", "40", "--json"});
  const HttpAnswer answer = ask(chat(kFox, 40));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(content(answer), json::parse(alone.out)["text"]);
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 40);
  EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "length");
}

TEST_F(Serve, AStreamIsTheSameAnswerInPieces) {
  const std::string whole = content(ask(chat(kFox, 40)));
  const HttpAnswer stream =
      ask(chat(kFox, 40, {{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(stream.headers.at("x-accel-buffering"), "no") << "nginx would send it in lumps";
  EXPECT_THAT(stream.body, ::testing::EndsWith("data: [DONE]\n\n"));
  const std::vector<json> events = stream.events();
  std::string text;
  for (const json& event : events) {
    EXPECT_EQ(event["id"], events[0]["id"]);
    if (!event["choices"].empty()) {
      const json& delta = event["choices"][0]["delta"];
      if (delta.contains("content") && delta["content"].is_string()) text += delta["content"];
    }
  }
  EXPECT_EQ(text, whole);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 40);
  EXPECT_GT(events.back()["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(Serve, StopStringsEndAnAnswerAndAreNeverShown) {
  const std::string whole = content(ask(chat(kFox, 60)));
  const size_t at = whole.find(" was a");
  ASSERT_NE(at, std::string::npos) << whole;
  const HttpAnswer stopped = ask(chat(kFox, 60, {{"stop", json::array({" was a", "nowhere"})}}));
  EXPECT_EQ(content(stopped), whole.substr(0, at));
  EXPECT_EQ(stopped.json()["choices"][0]["finish_reason"], "stop");
}

TEST_F(Serve, ChoicesSeedsAndLogprobs) {
  const HttpAnswer two = ask(chat(kFox, 12, {{"n", 2}, {"temperature", 1.0}, {"seed", 5}}));
  ASSERT_EQ(two.status, 200) << two.body;
  EXPECT_EQ(two.json()["choices"].size(), 2u);
  EXPECT_NE(two.json()["choices"][0]["message"], two.json()["choices"][1]["message"]);
  const HttpAnswer again = ask(chat(kFox, 12, {{"n", 2}, {"temperature", 1.0}, {"seed", 5}}));
  for (size_t i = 0; i < 2; ++i) {  // the place in the batch is another
    EXPECT_EQ(two.json()["choices"][i]["message"], again.json()["choices"][i]["message"]);
  }

  const HttpAnswer scored = ask(chat(kFox, 5, {{"logprobs", true}, {"top_logprobs", 3}}));
  const json list = scored.json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(list.size(), 5u) << scored.body;
  std::string text;
  for (const json& item : list) {
    EXPECT_LE(item["logprob"], 0);
    EXPECT_EQ(item["top_logprobs"].size(), 3u);
    EXPECT_EQ(item["top_logprobs"][0]["token"], item["token"]) << "greedy";
    text += item["token"];
  }
  EXPECT_EQ(text, content(scored));

  // A bias of -100 forbids the first token.
  const json tokens =
      server_->post("/tokenize", json{{"content", text.substr(0, 4)}}.dump()).json()["tokens"];
  const std::string first = std::to_string(tokens[0].get<int>());
  EXPECT_NE(content(ask(chat(kFox, 5, {{"logit_bias", {{first, -100}}}}))).substr(0, 4),
            text.substr(0, 4));
}

TEST_F(Serve, CompletionsTakeTextsAndTokens) {
  const json ids =
      server_->post("/tokenize", R"({"content": "Once upon a time", "add_special": true})")
          .json()["tokens"];
  const json base = {{"max_tokens", 8}, {"temperature", 0}};
  const auto complete = [&](const json& prompt) {
    json body = base;
    body["prompt"] = prompt;
    return server_->post("/v1/completions", body.dump());
  };
  const HttpAnswer text = complete("Once upon a time"), tokens = complete(ids);
  ASSERT_EQ(text.status, 200) << text.body;
  EXPECT_EQ(text.json()["choices"][0]["text"], tokens.json()["choices"][0]["text"]);
  const HttpAnswer both = complete(json::array({"Once upon a time", "The fox"}));
  EXPECT_EQ(both.json()["choices"].size(), 2u);
  EXPECT_EQ(both.json()["choices"][0]["text"], text.json()["choices"][0]["text"]);
  EXPECT_EQ(both.json()["usage"]["prompt_tokens"].get<int>(),
            text.json()["usage"]["prompt_tokens"].get<int>() +
                complete("The fox").json()["usage"]["prompt_tokens"].get<int>());
  for (const json& bad : {json(-1), json(1e30), json(2048)}) {
    EXPECT_EQ(complete(json::array({bad})).status, 400) << bad;
  }
}

TEST_F(Serve, SpeaksOllamaAnthropicAndResponses) {
  const std::string whole = content(ask(chat(kFox, 20)));
  const json message = {{"role", "user"}, {"content", kFox}};
  const json options = {{"temperature", 0}, {"num_predict", 20}};

  const HttpAnswer lines = server_->post(
      "/api/chat",
      json{{"model", "qwen3moe"}, {"messages", {message}}, {"options", options}}.dump());
  std::string text;
  for (const json& line : lines.events()) text += line["message"]["content"];
  EXPECT_EQ(text, whole);
  EXPECT_EQ(lines.events().back()["done_reason"], "length");
  EXPECT_EQ(lines.events().back()["eval_count"], 20);
  const HttpAnswer generated = server_->post(
      "/api/generate", json{{"prompt", kFox}, {"stream", false}, {"options", options}}.dump());
  EXPECT_EQ(generated.json()["response"], whole);
  EXPECT_EQ(server_->get("/api/tags").json()["models"][0]["name"], "qwen3moe:latest");
  EXPECT_EQ(server_->post("/api/show", R"({"model": "qwen3moe"})").json()["details"]["family"],
            "qwen3moe");
  EXPECT_EQ(lines.headers.at("content-type"), "application/x-ndjson; charset=utf-8");
  EXPECT_EQ(lines.headers.at("x-accel-buffering"), "no");

  const HttpAnswer claude = server_->post(
      "/v1/messages", json{{"messages", {message}}, {"max_tokens", 20}, {"temperature", 0}}.dump());
  EXPECT_EQ(claude.json()["content"][0]["text"], whole) << claude.body;
  EXPECT_EQ(claude.json()["stop_reason"], "max_tokens");
  const HttpAnswer claude_stream = server_->post(
      "/v1/messages",
      json{{"messages", {message}}, {"max_tokens", 20}, {"temperature", 0}, {"stream", true}}
          .dump());
  EXPECT_THAT(claude_stream.body, HasSubstr("event: message_start"));
  EXPECT_THAT(claude_stream.body, HasSubstr("event: message_stop"));
  const json first = claude_stream.events()[0];
  EXPECT_EQ(first["type"], "message_start");
  EXPECT_EQ(first["message"]["usage"]["input_tokens"],
            server_->post("/v1/messages/count_tokens", json{{"messages", {message}}}.dump())
                .json()["input_tokens"]);
  EXPECT_EQ(claude_stream.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(server_->post("/v1/messages/count_tokens", json{{"messages", {message}}}.dump())
                .json()["input_tokens"],
            ask(chat(kFox, 1)).json()["usage"]["prompt_tokens"]);

  const HttpAnswer response = server_->post(
      "/v1/responses", json{{"input", kFox}, {"max_output_tokens", 20}, {"temperature", 0}}.dump());
  EXPECT_EQ(response.json()["output"][0]["content"][0]["text"], whole) << response.body;
  EXPECT_EQ(response.json()["status"], "incomplete");
}

// Clients are written for one vendor, and send the names of its models.
TEST_F(Serve, AnyNameOfAModelIsThisOne) {
  const json message = {{"role", "user"}, {"content", kFox}};
  for (const char* name :
       {"gpt-4o", "claude-sonnet-4-5", "llama3:8b", "a/b:c", "", "\xe4\xbd\xa0"}) {
    const HttpAnswer answer = ask(chat(kFox, 2, {{"model", name}}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["model"], "qwen3moe") << "which one it was is told";
    const std::pair<const char*, json> kRequests[] = {
        {"/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}},
        {"/v1/responses", {{"input", "a"}, {"max_output_tokens", 1}}},
        {"/v1/messages", {{"messages", {message}}, {"max_tokens", 1}}},
        {"/v1/embeddings", {{"input", "a"}}},
        {"/api/chat", {{"messages", {message}}, {"options", {{"num_predict", 1}}}}},
        {"/api/generate", {{"prompt", "a"}, {"options", {{"num_predict", 1}}}}},
        {"/api/embed", {{"input", "a"}}},
        {"/api/show", json::object()},
    };
    for (auto [path, body] : kRequests) {
      body["model"] = name;
      EXPECT_EQ(server_->post(path, body.dump()).status, 200) << path << " " << name;
    }
  }
  EXPECT_EQ(server_->get("/v1/models/gpt-4o").status, 404) << "there is no such one to look at";
}

TEST_F(Serve, TheModelGoesOnWithAnAnswerThatHasBegun) {
  const std::string whole = content(ask(chat(kFox, 20)));
  const json question = {{"role", "user"}, {"content", kFox}};
  const std::string begun = whole.substr(0, whole.find(' '));
  const json messages = {question, {{"role", "assistant"}, {"content", begun}}};
  const json body = {{"messages", messages}, {"max_tokens", 8}, {"temperature", 0}};
  // As far as its beginning is cut into the tokens that the model said.
  const auto goes_on = [&](const std::string& text) {
    return !text.empty() &&
           (begun + text).compare(0, begun.size() + 8, whole, 0, begun.size() + 8) == 0;
  };
  EXPECT_PRED1(goes_on, content(server_->post("/v1/chat/completions", body.dump())));
  EXPECT_PRED1(goes_on, server_->post("/v1/messages", body.dump()).json()["content"][0]["text"]);
  json ollama = {{"messages", messages}, {"stream", false}};
  ollama["options"] = {{"temperature", 0}, {"num_predict", 8}};
  EXPECT_PRED1(goes_on, server_->post("/api/chat", ollama.dump()).json()["message"]["content"]);
  json as_it_is = body;
  as_it_is["continue_final_message"] = false;
  EXPECT_GT(server_->post("/v1/chat/completions", as_it_is.dump())
                .json()["usage"]["prompt_tokens"]
                .get<int>(),
            server_->post("/v1/chat/completions", body.dump())
                .json()["usage"]["prompt_tokens"]
                .get<int>())
      << "a message of the assistant more";
}

TEST_F(Serve, ConstrainedAnswersParse) {
  const json schema = {
      {"type", "object"},
      {"properties",
       {{"name", {{"type", "string"}, {"maxLength", 10}}}, {"kind", {{"enum", {"fox", "hare"}}}}}},
      {"required", {"name", "kind"}},
      {"additionalProperties", false}};
  const json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "animal"}, {"schema", schema}}}};
  for (const double temperature : {0.0, 1.5}) {
    const HttpAnswer answer =
        ask(chat(kFox, 300, {{"response_format", format}, {"temperature", temperature}}));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json value = json::parse(content(answer), nullptr, false);
    ASSERT_TRUE(value.is_object()) << content(answer);
    EXPECT_TRUE(value["kind"] == "fox" || value["kind"] == "hare") << value;
  }
  const HttpAnswer counted = ask(chat(kFox, 50, {{"grammar", "root ::= [0-9]{3}"}}));
  EXPECT_EQ(content(counted).size(), 3u) << counted.body;
  EXPECT_EQ(counted.json()["choices"][0]["finish_reason"], "stop");

  const json tool = {{"type", "function"},
                     {"function",
                      {{"name", "get_weather"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"city", {{"type", "string"}, {"maxLength", 10}}}}},
                         {"required", {"city"}}}}}}};
  const HttpAnswer called =
      ask(chat(kFox, 200, {{"tools", json::array({tool})}, {"tool_choice", "required"}}));
  const json choice = called.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << called.body;
  const json function = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(function["name"], "get_weather");
  EXPECT_TRUE(json::parse(function["arguments"].get<std::string>()).contains("city"));

  // Streamed as it is said: many pieces, the same arguments.
  const HttpAnswer stream = ask(chat(
      kFox, 200, {{"tools", json::array({tool})}, {"tool_choice", "required"}, {"stream", true}}));
  std::string arguments;
  int pieces = 0;
  for (const json& event : stream.events()) {
    if (event["choices"].empty() || !event["choices"][0]["delta"].contains("tool_calls")) continue;
    const json said = event["choices"][0]["delta"]["tool_calls"][0]["function"];
    if (pieces == 0) {
      EXPECT_EQ(said["name"], "get_weather");
    }
    arguments += said["arguments"];
    ++pieces;
  }
  EXPECT_GT(pieces, 4) << stream.body;
  EXPECT_EQ(json::parse(arguments), json::parse(function["arguments"].get<std::string>()));

  const HttpAnswer wrong = ask(chat(kFox, 5, {{"grammar", "root ::= \"a"}}));
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.json()["error"]["param"], "grammar");
  const HttpAnswer schema_wrong =
      server_->post("/api/chat", json{{"messages", {{{"role", "user"}, {"content", "x"}}}},
                                      {"format", {{"type", "no-such-type"}}}}
                                     .dump());
  EXPECT_EQ(schema_wrong.status, 400) << schema_wrong.body;
}

TEST_F(Serve, AConstrainedAnswerMayBeReasonedFirst) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("deepseek3"), "-o", plan}).status, 0);
  const ServerProcess server({plan, "--max-batch", "2"});
  const json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "integer"}}}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  // Its template opens the reasoning; `reasoning` is what that one calls it.
  for (const bool reasons : {true, false}) {
    const json body =
        chat("What is 12 + 30?", 200,
             {{"json_schema", schema},
              {"chat_template_kwargs", {{"enable_thinking", reasons}, {"reasoning", reasons}}}});
    const HttpAnswer answer = server.post("/v1/chat/completions", body.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json message = answer.json()["choices"][0]["message"];
    EXPECT_EQ(message.contains("reasoning_content"), reasons) << answer.body;
    const json value = json::parse(message["content"].get<std::string>(), nullptr, false);
    EXPECT_TRUE(value.is_object() && value["a"].is_number_integer()) << answer.body;
  }
}

TEST_F(Serve, ManyAtOnceGetTheirOwnAnswers) {
  std::vector<std::string> prompts, expected;
  for (int i = 0; i < 6; ++i) {
    prompts.push_back("Tell me a story about a fox and the number " + std::to_string(i));
    expected.push_back(content(ask(chat(prompts.back(), 30, {{"cache_prompt", false}}))));
  }
  std::atomic<int> wrong = 0, right = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 6; ++i) {
        const int which = (c * 5 + i) % 6;
        if ((c + i) % 5 == 0) {
          // Goes away in the middle.
          Connection leaver(server_->port());
          leaver.send(http_request("POST", "/v1/chat/completions",
                                   chat(prompts[which], 3000, {{"stream", true}}).dump()));
          leaver.receive();
          continue;
        }
        (content(ask(chat(prompts[which], 30))) == expected[which] ? right : wrong) += 1;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 70);
  expect_idle();
  EXPECT_GT(server_->metric("requests_cancelled_total"), 0);
}

TEST_F(Serve, ASlotSurvivesARestart) {
  const std::string long_text = std::string(kFox) + " It must be a long one, with a castle.";
  const std::string whole = content(ask(chat(long_text, 80, {{"cache_prompt", false}})));
  const TempDir dir;
  std::vector<int32_t> tokens;
  {
    ServerProcess first({plan(), "--slot-dir", dir.path(), "--max-batch", "1"});
    // Cut off in the middle of the answer, by its client.
    Connection client(first.port());
    client.send(http_request("POST", "/v1/chat/completions",
                             chat(long_text, 2000, {{"stream", true}}).dump()));
    std::string seen;
    while (seen.find("castle") == std::string::npos && seen.size() < 8000) seen += client.receive();
    const HttpAnswer saved = first.post("/slots/0?action=save", R"({"filename": "fox.slot"})");
    EXPECT_EQ(saved.status, 200) << saved.body;
    EXPECT_GT(saved.json()["n_computed"], 20);
    first.stop(SIGKILL);
  }
  ServerProcess second({plan(), "--slot-dir", dir.path(), "--max-batch", "1"});
  const HttpAnswer restored = second.post("/slots/0?action=restore", R"({"filename": "fox.slot"})");
  ASSERT_EQ(restored.status, 200) << restored.body;
  const HttpAnswer answer = second.post("/v1/chat/completions", chat(long_text, 80).dump());
  EXPECT_EQ(content(answer), whole);
  const json usage = answer.json()["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"].get<int>() + 1, usage["prompt_tokens"]);
  EXPECT_EQ(second.post("/slots/0?action=erase", "{}").status, 200);
  EXPECT_EQ(second.post("/v1/chat/completions", chat(long_text, 2).dump())
                .json()["usage"]["prompt_tokens_details"]["cached_tokens"],
            0);
  for (const char* name : {"../x", "", ".hidden", "a/b", "no-such-file"}) {
    EXPECT_EQ(second.post("/slots/0?action=restore", json{{"filename", name}}.dump()).status, 400);
  }
}

TEST_F(Serve, WrongFieldsAreNamed) {
  const std::pair<json, const char*> kCases[] = {
      {{{"temperature", -1}}, "temperature"},
      {{{"temperature", "hot"}}, "temperature"},
      {{{"top_p", 2}}, "top_p"},
      {{{"n", 0}}, "n"},
      {{{"n", 1000000}}, "n"},
      {{{"max_tokens", 1e300}}, "max_tokens"},
      {{{"max_tokens", 1.5}}, "max_tokens"},
      {{{"stop", 3}}, "stop"},
      {{{"stop", json::array({1})}}, "stop"},
      {{{"logit_bias", {{"-5", 1}}}}, "logit_bias"},
      {{{"logit_bias", {{"5", 1e9}}}}, "logit_bias"},
      {{{"logit_bias", json::array({1})}}, "logit_bias"},
      {{{"top_logprobs", 21}}, "top_logprobs"},
      {{{"stream", "yes"}}, "stream"},
      {{{"seed", 1e200}}, "seed"},
      {{{"messages", "hello"}}, "messages"},
      {{{"messages", json::array()}}, "messages"},
      {{{"messages", json::array({1})}}, "messages[0]"},
      {{{"messages", json::array({{{"role", "king"}, {"content", ""}}})}}, "messages[0].role"},
      {{{"messages", json::array({{{"role", "user"}}})}}, "messages[0].content"},
      {{{"messages", json::array({{{"role", "user"}, {"content", 5}}})}}, "messages[0].content"},
      {{{"tools", json::array({5})}}, "tools[0]"},
      {{{"tools", {{"a", 1}}}}, "tools"},
      {{{"response_format", {{"type", "xml"}}}}, "response_format.type"},
      {{{"stream_options", 5}}, "stream_options"},
  };
  for (const auto& [more, param] : kCases) {
    const HttpAnswer answer = ask(chat("hi", 2, more));
    EXPECT_EQ(answer.status, 400) << more << answer.body;
    const json error = answer.json()["error"];
    EXPECT_EQ(error["param"], param) << more << answer.body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_THAT(error["message"].get<std::string>(), ::testing::Not(HasSubstr("exception")));
  }
  EXPECT_EQ(ask(chat("hi", 2, {{"model", 9}})).json()["error"]["param"], "model");
  const HttpAnswer picture =
      server_->post("/api/generate", R"({"prompt": "what is it?", "images": ["aGk="]})");
  EXPECT_EQ(picture.status, 400);
  EXPECT_THAT(picture.body, HasSubstr("'images'"));
  // Null counts as absent.
  EXPECT_EQ(
      ask(chat("hi", 2, {{"stop", nullptr}, {"tools", json::array()}, {"n", nullptr}})).status,
      200);
  std::string long_text;
  for (int i = 0; i < 3000; ++i) long_text += "word word ";
  const HttpAnswer too_long = ask(chat(long_text, 2));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(too_long.json()["error"]["code"], "context_length_exceeded");
}

TEST_F(Serve, TokenizeGivesNumbersAndPieces) {
  const json plain = server_->post("/tokenize", R"({"content": "A \"fox\" é\n"})").json()["tokens"];
  const json pieces =
      server_->post("/tokenize", R"({"content": "A \"fox\" é\n", "with_pieces": true})")
          .json()["tokens"];
  ASSERT_GT(plain.size(), 3u);
  ASSERT_EQ(pieces.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(pieces[i]["id"], plain[i]);
  EXPECT_TRUE(pieces[0]["piece"].is_string());
  EXPECT_EQ(server_->post("/tokenize", "{}").json()["tokens"], json::array());
  EXPECT_EQ(server_->post("/detokenize", json{{"tokens", plain}}.dump()).json()["content"],
            "A \"fox\" é\n");
}

// A text takes tens of times its size in memory while it becomes tokens.
TEST_F(Serve, TextsThatNoContextHoldsAreRefusedUnread) {
  const std::string text(5u << 20, 'a');
  const std::pair<const char*, json> kRequests[] = {
      {"/tokenize", {{"content", text}}},
      {"/v1/completions", {{"prompt", text}}},
      {"/v1/completions", {{"prompt", {"a", text}}}},
      {"/v1/chat/completions", chat(text, 1)},
      {"/v1/embeddings", {{"input", text}}},
      {"/api/generate", {{"prompt", text}, {"raw", true}}},
  };
  for (const auto& [path, body] : kRequests) {
    const HttpAnswer answer = server_->post(path, body.dump());
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_THAT(answer.body, HasSubstr("bytes, at most 4194304 are read at once")) << path;
  }
  expect_idle();
}

TEST_F(Serve, HostileBytesAreAnsweredOrClosed) {
  const auto raw = [&](const std::string& bytes) { return server_->send(bytes).status; };
  const std::string path = "/v1/chat/completions";
  EXPECT_EQ(raw(http_request("POST", path, "{")), 400);
  EXPECT_EQ(raw(http_request("POST", path, "[]")), 400);
  EXPECT_EQ(raw(http_request("POST", path, "")), 400);
  EXPECT_EQ(raw(http_request("POST", path, "{\"messages\": \"\xff\xfe\"}")), 400);
  EXPECT_EQ(raw(http_request("POST", path, "{\"temperature\": NaN}")), 400);
  EXPECT_EQ(raw(http_request("POST", path, "{\"temperature\": 1e999}")), 400);
  EXPECT_EQ(raw(http_request("POST", path, std::string(100000, '['))), 400);
  EXPECT_EQ(raw(http_request("POST", path, "{\"a\":" + std::string(100000, '{'))), 400);
  EXPECT_EQ(raw("GET /health HTTP/1.1\r\nX: " + std::string(100000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(
      raw("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52428800\r\n\r\n"),
      413);
  EXPECT_EQ(raw("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"),
            400);
  EXPECT_EQ(raw("POST " + path +
                " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n"),
            400);
  EXPECT_EQ(raw("GET / HTTP/9.9\r\n\r\n"), 505);
  EXPECT_EQ(raw("\x16\x03\x01\x02 TLS to a plain port\r\n\r\n"), 400);
  EXPECT_EQ(server_->get("/nowhere").status, 404);
  EXPECT_THAT(server_->get("/v1" + path).body, HasSubstr("did you mean '" + path + "'?"));
  EXPECT_EQ(server_->get(path).status, 405);
  EXPECT_EQ(server_->get(path).headers.at("allow"), "POST");
  EXPECT_EQ(server_->get("/health", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(raw("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403);
  EXPECT_EQ(raw("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"), 404);

  // A body that is too large although its size was not announced.
  Connection chunked(server_->port());
  chunked.send("POST " + path +
               " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  for (int i = 0; i < 40 && chunked.send(chunk); ++i) {
  }
  EXPECT_EQ(chunked.answer().status, 413);
  expect_idle();
}

TEST_F(Serve, PipelinedRequestsAreAnsweredInOrder) {
  Connection connection(server_->port());
  std::string all;
  for (int i = 1; i <= 5; ++i) {
    all += http_request("POST", "/v1/completions",
                        json{{"prompt", "Once"}, {"max_tokens", i}, {"temperature", 0}}.dump());
    all += http_request("GET", "/health");
  }
  ASSERT_TRUE(connection.send(all));
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(connection.answer().json()["usage"]["completion_tokens"], i);
    EXPECT_EQ(connection.answer().json()["status"], "ok");
  }
}

TEST_F(Serve, IdleAndSlowClientsHoldNobodyUp) {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const size_t count = std::min<size_t>(5000, files.rlim_max > 300 ? files.rlim_max - 200 : 100);
  const ServerProcess server({plan(), "--max-batch", "4"});
  std::vector<Connection> idle;
  idle.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    idle.emplace_back(server.port());
    ASSERT_TRUE(idle.back().connected()) << i;
    // Every second one is slow: a header that does not end.
    if (i % 2 == 0) idle.back().send("POST /v1/chat/completions HTTP/1.1\r\nHost: lo");
  }
  server.await_metric("connections", static_cast<double>(count));
  const double begin = cpu_seconds_of(server.pid());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(server.get("/health").status, 200);
  // Connections that wait cost nothing: a millisecond of processor time each, not one for each of
  // them.
  EXPECT_LT(cpu_seconds_of(server.pid()) - begin, sanitized() ? 10 : 1);
  EXPECT_EQ(server.post("/v1/chat/completions", chat("hi", 2).dump()).status, 200);
  // A slow one that goes on is served.
  idle[0].send("calhost\r\nContent-Length: 2\r\n\r\n{");
  idle[0].send("}");
  EXPECT_EQ(idle[0].answer().status, 400);
}

TEST_F(Serve, EncryptsWithACertificate) {
  const TempDir dir;
  const std::string key = dir.path("key.pem"), certificate = dir.path("cert.pem");
  const Finished made = run_program(
      {"/usr/bin/env", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
       "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
       "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", certificate});
  if (made.status != 0) GTEST_SKIP() << "no openssl here: " << made.err;
  const ServerProcess server(
      {plan(), "--tls-cert", certificate, "--tls-key", key, "--max-batch", "2"});
  EXPECT_THAT(server.log(), HasSubstr("listening on https://127.0.0.1:"));
  const std::string url = "https://localhost:" + std::to_string(server.port());
  const auto curl = [&](std::vector<std::string> args) {
    args.insert(args.begin(),
                {"/usr/bin/env", "curl", "-sS", "--noproxy", "*", "--max-time", "20"});
    return run_program(args);
  };
  const Finished health = curl({"--cacert", certificate, url + "/health"});
  if (health.status == 127) GTEST_SKIP() << "no curl here";
  EXPECT_EQ(health.status, 0) << health.err;
  EXPECT_THAT(health.out, HasSubstr("ok"));
  const Finished answer =
      curl({"--cacert", certificate, url + "/v1/chat/completions", "-d", chat(kFox, 20).dump()});
  EXPECT_EQ(json::parse(answer.out)["choices"][0]["message"]["content"],
            content(ask(chat(kFox, 20))));
  const Finished streamed = curl({"--cacert", certificate, url + "/v1/chat/completions", "-d",
                                  chat(kFox, 20, {{"stream", true}}).dump()});
  EXPECT_THAT(streamed.out, ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_NE(curl({url + "/health"}).status, 0) << "the certificate is its own";
  EXPECT_THAT(curl({"http" + url.substr(5) + "/health"}).out,
              HasSubstr("this port takes https://, not http://"));
  EXPECT_EQ(curl({"--cacert", certificate, url + "/health"}).status, 0) << "nor does it end it";

  for (const auto& [cert_file, key_file] :
       {std::pair(key, certificate), std::pair(std::string("/nowhere"), key)}) {
    const Finished wrong = run_program(
        {ktx_run(), "serve", plan(), "--port=0", "--tls-cert", cert_file, "--tls-key", key_file});
    EXPECT_EQ(wrong.status, 1);
    EXPECT_THAT(wrong.err, HasSubstr(cert_file));
  }
}

TEST_F(Serve, ARequestMayHaveItsOwnDeadline) {
  const double seconds = sanitized() ? 2 : 0.2;  // more than the first token takes
  const HttpAnswer answer =
      ask(chat(kFox, 100000, {{"max_seconds", seconds}, {"ignore_eos", true}, {"n", 4}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "length");
  EXPECT_LT(answer.json()["timings"]["predicted_ms"], 10000);
  EXPECT_EQ(ask(chat(kFox, 1, {{"max_seconds", -1}})).status, 400);
}

TEST_F(Serve, ToldToEndItFinishesWhatRuns) {
  const std::string profile = dir_->path("profile");
  ServerProcess server({plan(), "--max-batch", "2", "--profile", profile});
  Connection client(server.port());
  client.send(
      http_request("POST", "/v1/chat/completions", chat(kFox, 300, {{"ignore_eos", true}}).dump()));
  server.await_metric("requests_total", 1);  // not running: it may be over before we look
  std::thread stopper([&] { EXPECT_EQ(server.stop(SIGTERM), 0); });
  const HttpAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 300);
  stopper.join();

  std::ifstream lines(profile);
  int64_t steps = 0;
  double seconds = 0;
  for (std::string line; std::getline(lines, line);) {
    const json row = json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << line;
    EXPECT_FALSE(row["module"].get<std::string>().empty());
    EXPECT_EQ(row["device"], "cpu");
    steps = row["step"];
    seconds += row["seconds"].get<double>();
  }
  EXPECT_GE(steps, 300);
  EXPECT_GT(seconds, 0);
}

TEST_F(Serve, AFullQueueSaysWhenToComeBack) {
  ServerProcess server({plan(), "--max-batch", "1", "--max-queue", "1"});
  // Streams: their clients are missed at the next write.
  const std::string endless =
      http_request("POST", "/v1/chat/completions",
                   chat(kFox, 4000, {{"ignore_eos", true}, {"stream", true}}).dump());
  Connection running(server.port()), waiting(server.port());
  running.send(endless);
  server.await_metric("requests_running", 1);
  waiting.send(endless);
  server.await_metric("requests_waiting", 1);
  const HttpAnswer never = server.post("/v1/chat/completions", chat(kFox, 1, {{"n", 3}}).dump());
  EXPECT_EQ(never.status, 400) << "coming back does not help: " << never.body;
  EXPECT_EQ(never.json()["error"]["param"], "n");
  const HttpAnswer refused = server.post("/v1/chat/completions", chat(kFox, 1).dump());
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_EQ(refused.json()["error"]["type"], "rate_limit_error");
  // Clients that leave make room.
  running.close();
  waiting.close();
  server.await_metric("requests_cancelled_total", 2);
  EXPECT_EQ(server.post("/v1/chat/completions", chat(kFox, 1).dump()).status, 200);
}

TEST_F(Serve, KeysCrossOriginsAndSettings) {
  const TempDir dir;
  const std::string config = dir.write("serve.conf",
                                       "\xEF\xBB\xBF# a note\napi-key = secret  # of the fox\r\n"
                                       "  \t# another\nctx = 512\t# tokens, not KiB\n"
                                       "name = \"fox #1\"   # quoted\n");
  const std::string keys = dir.write("keys", "# keys\nal#ice # Alice's\n\nbob\n");
  const std::string log = dir.path("access.log");
  ServerProcess server({plan(), "--config", config, "--cors", "https://page.example",
                        "--access-log", log, "--api-key-file", keys});
  EXPECT_EQ(server.get("/health").status, 200) << "needs no key";
  EXPECT_EQ(server.get("/", "Accept: text/html\r\n").status, 200);
  const HttpAnswer refused = server.get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json()["error"]["type"], "authentication_error");
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer secre\r\n").status, 401);
  const HttpAnswer models = server.get("/v1/models", "Authorization: Bearer secret\r\n");
  EXPECT_EQ(models.json()["data"][0]["id"], "fox #1");
  for (const char* key : {"al#ice", "bob"}) {
    EXPECT_EQ(server.get("/v1/models", "Authorization: bearer " + std::string(key) + "\r\n").status,
              200);
  }
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer Alice's\r\n").status, 401);
  EXPECT_EQ(models.json()["data"][0]["meta"]["n_ctx"], 512);
  EXPECT_EQ(server.get("/v1/models", "X-Api-Key: secret\r\n").status, 200);
  const HttpAnswer page =
      server.get("/v1/models", "X-Api-Key: secret\r\nOrigin: https://page.example\r\n");
  EXPECT_EQ(page.headers.at("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(
      server.send(http_request("OPTIONS", "/v1/models", "", "Origin: https://page.example\r\n"))
          .status,
      200);
  const json line = json::parse(read_file(log).substr(0, read_file(log).find('\n')));
  EXPECT_EQ(line["path"], "/health");
  EXPECT_EQ(line["status"], 200);

  const Finished wrong = run_program(
      {ktx_run(), "serve", plan(), "--config", dir.write("bad.conf", "max-batsh = 3\n")});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("bad.conf:1: no option 'max-batsh'"));
  for (const auto& [line, said] :
       {std::pair{"max-batsh = 3", "'max-batsh'; did you mean 'max-batch'?"},
        std::pair{"--port = 1", "'--port'; did you mean 'port'?"},
        std::pair{"threads = 1", "'threads'; did you mean 't'?"},
        std::pair{"--- = 1", "'---'; `ktx-run serve --help` lists them"}}) {
    const std::string file = dir.write("near.conf", std::string(line) + "\n");
    EXPECT_THAT(run_program({ktx_run(), "serve", plan(), "--config", file}).err, HasSubstr(said));
  }
}

TEST_F(Serve, EmbeddingsPoolAsTheServerIsTold) {
  const ServerProcess mean({plan(), "--pooling", "mean", "--max-batch", "2"});
  const auto embed = [](const ServerProcess& server, const json& input) {
    const HttpAnswer answer = server.post("/v1/embeddings", json{{"input", input}}.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["data"][0]["embedding"];
  };
  EXPECT_EQ(embed(mean, {7}), embed(*server_, {7})) << "of one token both are the same";
  json text = json::array();
  for (int i = 0; i < 100; ++i) text.push_back(i + 3);
  EXPECT_NE(embed(mean, text), embed(*server_, text));
  EXPECT_EQ(embed(mean, text), embed(mean, text)) << "also where the cache has it";
}

TEST_F(Serve, MetricsArePrometheusText) {
  ask(chat("hi", 2));
  const HttpAnswer answer = server_->get("/metrics");
  EXPECT_EQ(answer.status, 200);
  for (const char* name : {"ktx_requests_total ", "ktx_kv_blocks ", "ktx_cached_tokens_total ",
                           "ktx_time_to_first_token_seconds_bucket{le=\"+Inf\"} ",
                           "ktx_time_between_tokens_seconds_sum "}) {
    EXPECT_THAT(answer.body, HasSubstr(name));
  }
}

}  // namespace
}  // namespace ktx::testing
