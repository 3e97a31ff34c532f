// A fault inside the server is reported as an error by the affected requests, and the server
// keeps running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "lib/input/gguf.h"
#include "lib/server/server.h"
#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kQuestion =
    R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0)";

// A server in this process; its engine throws behind a step that the test chooses.
class ServeFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string plan = dir_.path("m.ktxplan");
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
    runtime::SchedulerOptions scheduler;
    scheduler.after_step = [this](runtime::Engine&) {
      const int left = steps_until_.fetch_sub(1);
      if (left == 1 && memory_) throw std::bad_alloc();
      if (left == 1) throw std::runtime_error("thrown by the test");
    };
    model->scheduler = std::make_unique<runtime::BatchScheduler>(*model->engine, scheduler);
    server::ServerOptions settings;
    settings.http.port = 0;
    server_.emplace(settings);
    ASSERT_TRUE(server_->start().ok());
    server_->set_model(model);
  }
  // The engine throws behind the step of that number from now on.
  void throw_after(int steps, bool memory) {
    memory_ = memory;
    steps_until_ = steps;
  }
  HttpAnswer post(const std::string& path, const std::string& body) {
    Connection client(server_->port());
    client.send(http_request("POST", path, body));
    return client.answer();
  }

  TempDir dir_;
  std::atomic<int> steps_until_ = 0;
  std::atomic<bool> memory_ = false;
  std::optional<server::Server> server_;
};

TEST_F(ServeFaults, AnExceptionOfTheEngineIsAnAnswerWith500) {
  const std::string plain = std::string(kQuestion) + "}";
  const HttpAnswer before = post("/v1/chat/completions", plain);
  ASSERT_EQ(before.status, 200) << before.body;
  for (const bool memory : {true, false}) {
    for (const int step : {1, 3}) {
      for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
        throw_after(step, memory);
        const HttpAnswer answer = post(path, plain);
        EXPECT_EQ(answer.status, 500) << path << answer.body;
        const bool messages = path == std::string_view("/v1/messages");
        EXPECT_EQ(answer.json()["error"]["type"], messages ? "api_error" : "server_error")
            << answer.body;
        EXPECT_THAT(answer.body, HasSubstr(memory ? "not enough memory" : "an error inside"));
      }
    }
  }
  throw_after(1, true);
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").status, 500);
  throw_after(2, true);
  const HttpAnswer stream =
      post("/v1/chat/completions", std::string(kQuestion) + R"(, "stream": true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body, HasSubstr("server_error"));
  EXPECT_THAT(stream.body, Not(HasSubstr(R"("finish_reason":"length")")));
  throw_after(1, true);
  const HttpAnswer ollama =
      post("/api/chat", R"({"messages": [{"role": "user", "content": "Hi"}], "stream": false})");
  EXPECT_EQ(ollama.status, 500);
  EXPECT_TRUE(ollama.json()["error"].is_string()) << ollama.body;

  const HttpAnswer after = post("/v1/chat/completions", plain);
  ASSERT_EQ(after.status, 200) << after.body;
  EXPECT_EQ(after.json()["choices"], before.json()["choices"]);
}

// A model whose final norm is not a number, as damaged weights have it.
TEST(ServeNotFinite, EmbeddingsThatAreNoNumbersAreAnError) {
  const TempDir dir;
  std::string bytes = read_file(model_gguf("llama"));
  {
    auto file = input::GgufFile::open(model_gguf("llama"));
    ASSERT_TRUE(file.ok()) << file.error().message;
    const input::GgufTensor* norm = file->find("output_norm.weight");
    ASSERT_TRUE(norm != nullptr && norm->dtype == DType::F32);
    const float values[] = {std::nanf(""), std::numeric_limits<float>::infinity()};
    std::memcpy(bytes.data() + norm->offset_in_file, values, sizeof values);
  }
  const std::string gguf = dir.write("m.gguf", bytes), plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", gguf, "-o", plan}).status, 0);
  const ServerProcess server({plan, "--max-batch", "2"});
  for (const auto& [path, body] : std::initializer_list<std::pair<const char*, json>>{
           {"/v1/embeddings", {{"input", "a fox"}}},
           {"/v1/embeddings", {{"input", {"a", "b", "c"}}, {"encoding_format", "base64"}}},
           {"/api/embed", {{"input", "a fox"}}},
           {"/api/embeddings", {{"prompt", "a fox"}}}}) {
    const HttpAnswer answer = server.post(path, body.dump());
    EXPECT_EQ(answer.status, 500) << path << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("NaN (not a number) or infinity in the vector of text 0"));
    EXPECT_THAT(answer.body, HasSubstr("ktx-run inspect --verify"));
  }
  const HttpAnswer chat = server.post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
  EXPECT_EQ(chat.status, 500) << chat.body;
  EXPECT_THAT(chat.body, HasSubstr("NaN"));
  EXPECT_EQ(server.get("/health").status, 200);
}

}  // namespace
}  // namespace ktx::testing
