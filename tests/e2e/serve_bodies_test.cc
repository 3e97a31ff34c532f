// Random request bodies: valid requests with values, fields and bytes changed at random, to
// every endpoint, in this process. Each is answered with 2xx or 4xx, and valid requests get the
// same answer afterwards.
//
//   KTX_FUZZ_SECONDS=600 test_e2e --gtest_filter=ServeBodies.*      (else some thousands)
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <random>

#include "lib/server/server.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using nlohmann::json;

struct Given {
  int status = 0;
  std::string body;
};

// Waits for the end of the answer, or goes away at once.
class Client final : public server::HttpReply {
 public:
  explicit Client(bool leaves) : leaves_(leaves) {}
  void send(int status, std::string_view, std::string body, const server::HttpHeaders&) override {
    given_.status = status;
    given_.body = std::move(body);
    done_.set_value();
  }
  void begin(int status, std::string_view, const server::HttpHeaders&) override {
    given_.status = status;
    begun_ = true;
  }
  void write(std::string piece) override { given_.body += piece; }
  void end() override { done_.set_value(); }
  void on_gone(std::function<void()> call) override {
    if (leaves_) call();
  }
  bool begun() const override { return begun_; }

  Given wait() {
    done_.get_future().wait();
    return given_;
  }

 private:
  const bool leaves_;
  bool begun_ = false;
  Given given_;
  std::promise<void> done_;
};

const char* const kBodies[][2] = {
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "temperature": 0,
         "stop": ["x", "yy"], "logit_bias": {"5": -1}, "n": 2, "stream": true, "seed": 1,
         "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}]},
         {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
          "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
         {"role": "tool", "tool_call_id": "1", "content": "x"}], "max_tokens": 3,
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}],
         "tool_choice": "required", "chat_template_kwargs": {"enable_thinking": true}})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "response_format":
         {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object",
          "properties": {"s": {"type": "string", "maxLength": 3, "pattern": "^a+$"},
          "l": {"type": "array", "items": {"enum": [1, "b"]}, "maxItems": 3}}}}}})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "tools": [{"type":
         "function", "function": {"name": "f", "parameters": {"$defs": {"P": {"type": "object",
         "properties": {"p": {"$ref": "#/$defs/P"}}, "unevaluatedProperties": false}},
         "$ref": "#/$defs/P"}}}, {"type": "function", "function": {"name": "g"}}],
         "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools":
         [{"type": "function", "function": {"name": "g"}}]}}, "parallel_tool_calls": false})"},
    {"/v1/completions",
     R"({"prompt": "a", "max_tokens": 3, "ignore_eos": true, "structured_outputs": {"regex":
         "[a-c]{2,3}", "choice": null, "disable_any_whitespace": false}})"},
    {"/v1/completions",
     R"({"prompt": "a", "max_tokens": 3, "guided_json": {"type": "array", "items": [{"not":
         {"type": "null"}}, false], "additionalItems": {"propertyNames": {"enum": ["a"]}},
         "maxItems": 2}})"},
    {"/v1/completions",
     R"({"prompt": ["Once", [1, 2, 3]], "max_tokens": 2, "echo": true, "logprobs": 3,
         "grammar": "root ::= [a-z]{1,3}", "top_p": 0.9, "min_p": 0.1, "top_k": 5})"},
    {"/v1/completions", R"({"resume_slot": 0, "max_tokens": 2, "repeat_last_n": 3})"},
    {"/v1/chat/completions", R"({"resume_slot": 1, "max_tokens": 3, "stream": true})"},
    {"/v1/embeddings",
     R"({"input": ["a", "b"], "dimensions": 4, "encoding_format": "base64", "model": ""})"},
    {"/v1/responses",
     R"({"input": [{"role": "user", "content": "Hi"}, {"type": "function_call", "call_id": "1",
         "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1",
         "output": "x"}], "max_output_tokens": 3, "stream": true, "instructions": "b"})"},
    {"/v1/messages",
     R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
         "max_tokens": 3, "system": "s", "thinking": {"type": "enabled"}, "stream": true,
         "tools": [{"name": "f", "input_schema": {"type": "object"}}],
         "tool_choice": {"type": "auto"}, "stop_sequences": ["q"]})"},
    {"/v1/messages",
     R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "output_config":
         {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}})"},
    {"/v1/responses",
     R"({"input": "Hi", "max_output_tokens": 3, "text": {"format": {"type": "json_schema", "name":
         "n", "strict": true, "schema": {"properties": {"a": {"enum": [1]}}}}}})"},
    {"/api/chat",
     R"({"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 3,
         "temperature": 0, "stop": ["x"]}, "format": {"type": "object"}, "think": true,
         "stream": false, "keep_alive": 5})"},
    {"/api/generate", R"({"prompt": "a", "raw": true, "system": "x", "options":
                         {"num_predict": 2}, "stream": true})"},
    {"/api/embed", R"({"input": ["a", "b"], "truncate": true, "dimensions": 8})"},
    {"/api/embeddings", R"({"prompt": "a"})"},
    {"/api/show", R"({"model": ""})"},
    {"/tokenize", R"({"content": "abc", "add_special": true, "with_pieces": true})"},
    {"/detokenize", R"({"tokens": [1, 2, 3]})"},
    {"/apply-template", R"({"messages": [{"role": "user", "content": "Hi"}], "tools": []})"},
    {"/slots/0", R"({"filename": "x"})"},
};

class Changer {
 public:
  explicit Changer(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }

  // One place of a JSON value becomes something else, or goes, or comes twice.
  void change(json& value) {
    if (value.is_structured() && !value.empty() && below(6) != 0) {
      const size_t at = below(value.size());
      auto it = value.begin();
      std::advance(it, at);
      switch (below(12)) {
        case 0:
          value.erase(it);
          return;
        case 1:
          if (value.is_array()) {
            const json copy = *it;
            value.push_back(copy);
          } else {
            value["unknown"] = 1;
          }
          return;
        default:
          return change(*it);
      }
    }
    static const char* const kValues[] = {"null",
                                          "true",
                                          "-1",
                                          "0",
                                          "1",
                                          "3.5",
                                          "1e300",
                                          "-9223372036854775808",
                                          "2",
                                          "7",
                                          "[]",
                                          "{}",
                                          "\"\"",
                                          "\"a\"",
                                          "\"user\"",
                                          "18446744073709551615",
                                          "[[]]",
                                          "[1]",
                                          "[-1]",
                                          "{\"type\": \"string\"}",
                                          "[{}]",
                                          "\"\\u0000\"",
                                          "{\"$ref\": \"#\"}",
                                          "\"auto\"",
                                          "\"object\"",
                                          "1e-300",
                                          "\"json\"",
                                          "\"required\""};
    value = json::parse(kValues[below(std::size(kValues))]);
    if (below(40) == 0) value = std::string(5000, 'w');
    if (below(40) == 0) value = json::array({value, value, value, value});
  }
  // One byte.
  void change(std::string& text) {
    if (text.empty()) return;
    const size_t at = below(text.size());
    if (below(3) == 0)
      text.resize(at);
    else
      text[at] = static_cast<char>(below(256));
  }

 private:
  std::mt19937_64 random_;
};

// As when a host of a plan for several is lost: probes and proxies see it.
TEST(ServeBodies, AServerThatHasFailedIsNotHealthy) {
  std::string failure;
  server::ServerOptions settings;
  settings.failure = [&] { return failure; };
  server::Server server(settings);
  const auto health = [&] {
    server::HttpRequest request;
    request.method = "GET";
    request.path = "/health";
    const auto client = std::make_shared<Client>(false);
    server.handle(request, client);
    return client->wait();
  };
  EXPECT_EQ(json::parse(health().body)["error"]["code"], "loading");
  failure = "host b (rank 1) has given no sign of life for 4 s";
  const auto failed = health();
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(json::parse(failed.body)["error"]["message"], failure);
}

TEST(ServeBodies, EveryChangedRequestIsAnswered) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan}).status, 0);
  runtime::EngineOptions options;
  options.threads = 2;
  options.ctx = 256;
  options.max_batch = 4;
  auto model = std::make_shared<server::ServedModel>();
  auto engine = runtime::Engine::open(plan, options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  model->engine = engine.take();
  ASSERT_TRUE(server::complete_model(*model, plan).ok());
  model->scheduler =
      std::make_unique<runtime::BatchScheduler>(*model->engine, runtime::SchedulerOptions());
  server::ServerOptions settings;
  settings.slot_dir = dir.path();
  server::Server server(settings);
  server.set_model(model);
  const auto ask = [&](const char* path, const std::string& query, std::string body,
                       bool leaves = false) {
    server::HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.query = query;
    request.body = std::move(body);
    const auto client = std::make_shared<Client>(leaves);
    server.handle(request, client);
    return client->wait();
  };
  const auto plain = [&] {
    return ask("/api/generate", "", R"({"prompt": "Once upon", "raw": true,
      "stream": false, "options": {"temperature": 0, "num_predict": 8}})");
  };
  const json before = json::parse(plain().body);
  ASSERT_EQ(before.value("eval_count", 0), 8) << before;

  const uint64_t seed = std::random_device{}();
  const char* seconds = std::getenv("KTX_FUZZ_SECONDS");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
  Changer changer(seed);
  int64_t asked = 0, taken = 0;
  while (asked < 100 || std::chrono::steady_clock::now() < end) {
    const auto& [path, text] = kBodies[changer.below(std::size(kBodies))];
    json body = json::parse(text);
    for (size_t i = changer.below(4); i > 0; --i) changer.change(body);
    std::string bytes = body.dump();
    if (changer.below(8) == 0) changer.change(bytes);
    // A well-formed request may have a long answer: the test does not wait for it.
    const bool leaves = bytes.find("\"max_tokens\":3") == std::string::npos;
    static const char* const kActions[] = {"action=save", "action=restore", "action=erase"};
    const Given given = ask(path, kActions[changer.below(3)], bytes, leaves);
    ++asked;
    taken += given.status == 200;
    // Cancelled, because the client left: 503, or 529 in the Anthropic protocol. 409: a busy slot.
    const int cancelled = std::string_view(path).starts_with("/v1/messages") ? 529 : 503;
    const bool good = given.status == 200 || (leaves && given.status == cancelled) ||
                      (given.status >= 400 && given.status < 500);
    ASSERT_TRUE(good) << given.status << " " << given.body << "\nseed " << seed << ", " << path
                      << ": " << bytes;
  }
  EXPECT_GT(taken, 0);
  json after = json::parse(plain().body);
  EXPECT_EQ(after["response"], before["response"]);
  if (seconds) std::printf("%ld requests, %ld answered with 200\n", long(asked), long(taken));
}

}  // namespace
}  // namespace ktx::testing
