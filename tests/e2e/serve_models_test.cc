// ktx-run serve FOLDER: several models behind one server.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ServeModels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    plans_ = new TempDir;
    for (const char* model : {"llama", "qwen2"}) {
      ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf(model), "-o",
                             plans_->path(std::string(model) + ".ktxplan")})
                    .status,
                0);
    }
  }
  static void TearDownTestSuite() { delete plans_; }

  void SetUp() override {
    std::filesystem::create_directories(dir_.path("org"));
    std::filesystem::copy_file(plans_->path("llama.ktxplan"), dir_.path("llama.ktxplan"));
    std::filesystem::copy_file(plans_->path("qwen2.ktxplan"), dir_.path("org/qwen2:q4.ktxplan"));
    std::ofstream(dir_.path("broken.ktxplan"))
        << read_file(plans_->path("llama.ktxplan")).substr(0, 20000);
  }
  ServerProcess serve(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {dir_.path(), "-t", "2", "--max-batch", "2"});
    return ServerProcess(more);
  }
  static std::string ask(const std::string& model, int tokens = 40) {
    return json{{"model", model},
                {"messages", {{{"role", "user"}, {"content", "Tell me a story about a fox."}}}},
                {"max_tokens", tokens},
                {"temperature", 0}}
        .dump();
  }
  static std::string content(const HttpAnswer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["choices"][0]["message"]["content"];
  }
  static std::string status(const ServerProcess& server, const std::string& model) {
    const json list = server.get("/v1/models").json();
    for (const json& one : list["data"]) {
      if (one["id"] == model) return one["status"]["value"];
    }
    return "none";
  }
  static void await_status(const ServerProcess& server, const std::string& model,
                           const std::string& wanted) {
    await([&] { return status(server, model) == wanted; });
  }

  static TempDir* plans_;
  TempDir dir_;
};
TempDir* ServeModels::plans_ = nullptr;

TEST_F(ServeModels, AreListedAndLoadedByName) {
  const ServerProcess server = serve({"--access-log", dir_.path("log")});
  EXPECT_EQ(server.get("/health").status, 200);
  const json list = server.get("/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 3u) << list;
  EXPECT_EQ(list[0]["id"], "broken");
  EXPECT_EQ(list[0]["status"]["failed"], true);
  EXPECT_THAT(list[0]["status"]["error"], HasSubstr("broken: 20000 bytes, expected"));
  EXPECT_EQ(list[1]["status"]["value"], "unloaded");
  EXPECT_EQ(list[1]["meta"]["n_vocab"], 2048);
  EXPECT_EQ(list[2]["id"], "org/qwen2:q4");

  const HttpAnswer llama = server.post("/v1/chat/completions", ask("llama"));
  EXPECT_EQ(llama.json()["model"], "llama");
  EXPECT_EQ(status(server, "llama"), "loaded");
  EXPECT_EQ(status(server, "org/qwen2:q4"), "unloaded");
  const HttpAnswer qwen = server.post("/v1/chat/completions", ask("org/qwen2:q4"));
  EXPECT_EQ(qwen.json()["model"], "org/qwen2:q4");
  EXPECT_NE(content(llama), content(qwen));
  // The same as alone.
  const ServerProcess alone({plans_->path("llama.ktxplan"), "-t", "2"});
  EXPECT_EQ(content(llama), content(alone.post("/v1/chat/completions", ask("any name"))));

  // Without a name: the one used last.
  const HttpAnswer same = server.post("/v1/completions", R"({"prompt": "Hi", "max_tokens": 1})");
  EXPECT_EQ(same.json()["model"], "org/qwen2:q4");
  // Every protocol, and GET by the query.
  EXPECT_EQ(server
                .post("/api/chat", R"({"model": "llama:latest", "stream": false, "options":
            {"num_predict": 1}, "messages": [{"role": "user", "content": "Hi"}]})")
                .json()["model"],
            "llama:latest");
  EXPECT_EQ(server
                .post("/v1/messages", R"({"model": "llama", "max_tokens": 1, "messages":
            [{"role": "user", "content": "Hi"}]})")
                .json()["model"],
            "llama");
  EXPECT_EQ(server.get("/plan?model=org%2Fqwen2:q4").json()["model"], "org/qwen2:q4");
  EXPECT_EQ(server.get("/props").json()["role"], "router");
  EXPECT_EQ(server.get("/props?model=llama").json()["model_path"], "llama.ktxplan");
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ktx_requests_total{model=\"llama\"} 3"));
  EXPECT_THAT(read_file(dir_.path("log")), HasSubstr(R"("model":"org/qwen2:q4")"));
}

TEST_F(ServeModels, WrongNamesAndDamagedPlansAreErrorsOfTheirRequest) {
  const ServerProcess server = serve({"--models-max", "1"});
  ASSERT_EQ(server.post("/v1/chat/completions", ask("llama")).status, 200);
  for (const char* name : {"none", "../llama", "./llama", "/etc/passwd", "org", "org/qwen2",
                           "llama.ktxplan", "LLAMA", "org/../llama"}) {
    const HttpAnswer answer = server.post("/v1/chat/completions", ask(name));
    EXPECT_EQ(answer.status, 404) << name << answer.body;
    EXPECT_EQ(answer.json()["error"]["code"], "model_not_found");
    EXPECT_EQ(server.get("/v1/models/" + std::string(name)).status, 404) << name;
  }
  EXPECT_EQ(server.post("/v1/chat/completions", ask(std::string(100000, 'x'))).status, 404);
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer broken = server.post("/v1/chat/completions", ask("broken"));
    EXPECT_EQ(broken.status, 500);
    EXPECT_THAT(broken.body, HasSubstr("broken: 20000 bytes"));
    EXPECT_THAT(broken.body, Not(HasSubstr(dir_.path())));
  }
  EXPECT_EQ(
      server.post("/api/chat", R"({"model": "none", "messages": []})").body,
      R"({"error":"the model 'none' does not exist; GET /v1/models lists those of this server"})");
  EXPECT_EQ(status(server, "llama"), "loaded") << "it did not make room for a damaged one";
}

// More models in demand than places: each request is answered by its model.
TEST_F(ServeModels, RequestsThatLoadAtOnceAreAllAnswered) {
  const ServerProcess server = serve({"--models-max", "1"});
  std::atomic<int> right = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&, name = std::string(i % 2 == 0 ? "llama" : "org/qwen2:q4")] {
      const HttpAnswer answer = server.post("/v1/chat/completions", ask(name));
      right += answer.status == 200 && answer.json()["model"] == name;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 12);
}

TEST_F(ServeModels, ModelsComputeBesideEachOther) {
  const ServerProcess server = serve();
  const std::string first = content(server.post("/v1/chat/completions", ask("llama", 200)));
  const std::string second = content(server.post("/v1/chat/completions", ask("org/qwen2:q4", 200)));
  std::vector<std::thread> clients;
  std::atomic<int> same = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const HttpAnswer answer =
          server.post("/v1/chat/completions", ask(i % 2 == 0 ? "llama" : "org/qwen2:q4", 200));
      same += content(answer) == (i % 2 == 0 ? first : second);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(same, 8);
}

// Answers of so many tokens, the next one twice as long, until one lasts beyond the request to
// unload.
TEST_F(ServeModels, UnloadingWaitsForAnswers) {
  const ServerProcess server = serve({"--ctx", "16384"});
  std::string seen;
  for (int tokens = 750; seen != "unloading" && tokens <= 12000; tokens *= 2) {
    Connection client(server.port());
    const json body = {{"model", "llama"},
                       {"prompt", "Hi"},
                       {"n_predict", tokens},
                       {"ignore_eos", true},
                       {"stream", true}};
    client.send(http_request("POST", "/completion", body.dump()));
    std::string text = client.receive();
    ASSERT_THAT(text, HasSubstr("200 OK"));
    EXPECT_EQ(server.post("/models/unload", R"({"model": "llama"})").json()["success"], true);
    seen = status(server, "llama");
    const std::string last = fmt::format("\"tokens_predicted\":{}", tokens);
    for (std::string more; !(more = client.receive()).empty();) {
      text += more;
      if (text.find(last) != text.npos) break;
    }
    EXPECT_THAT(text, HasSubstr(last)) << "to its end";
    await_status(server, "llama", "unloaded");
  }
  EXPECT_EQ(seen, "unloading");
  EXPECT_EQ(server.post("/models/load", R"({"model": "llama"})").json()["success"], true);
  await_status(server, "llama", "loaded");
  EXPECT_EQ(server.post("/models/load", R"({"model": "x"})").status, 404);
  EXPECT_EQ(server.post("/models/unload", "{}").status, 400);
}

TEST_F(ServeModels, ASingleModelSleepsAndWakes) {
  const ServerProcess server(
      {plans_->path("llama.ktxplan"), "-t", "2", "--sleep-idle-seconds", "1"});
  const std::string first = content(server.post("/v1/chat/completions", ask("")));
  await_status(server, "llama", "sleeping");
  json props = server.get("/props").json();
  EXPECT_EQ(props["is_sleeping"], true);
  EXPECT_EQ(props["model_path"], "llama.ktxplan");
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/stats").json()["requests_total"], 0);
  EXPECT_EQ(server.get("/api/ps").json()["models"].size(), 0u);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ktx_models_loaded 0"));
  EXPECT_EQ(server.get("/props").json()["is_sleeping"], true) << "none of these wakes it";
  EXPECT_EQ(content(server.post("/v1/chat/completions", ask("any"))), first);
  EXPECT_EQ(server.get("/props").json()["is_sleeping"], false);
}

TEST_F(ServeModels, AStrictServerAnswersToItsNamesAlone) {
  const ServerProcess server({plans_->path("llama.ktxplan"), "-t", "2", "--strict-model", "--name",
                              "own", "--alias", "other"});
  for (const char* name : {"own", "other", "own:latest", ""}) {
    EXPECT_EQ(server.post("/v1/chat/completions", ask(name)).status, 200) << name;
  }
  EXPECT_EQ(server.post("/v1/chat/completions", ask("llama")).status, 404);
}

TEST_F(ServeModels, NoRequestLoadsWhatIsNotToBeLoadedOnDemand) {
  const ServerProcess server = serve({"--models-autoload", "off"});
  const HttpAnswer refused = server.post("/v1/chat/completions", ask("llama"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["code"], "model_not_loaded");
  EXPECT_EQ(server.post("/models/load", R"({"model": "llama"})").status, 200);
  await_status(server, "llama", "loaded");
  EXPECT_EQ(server.post("/v1/chat/completions", ask("llama")).status, 200);
}

TEST_F(ServeModels, PlansAreCopiedAndDeletedOnlyWhereAllowed) {
  const std::string keys = dir_.path("keys");
  std::ofstream(keys) << "plain\neditor models=edit\n";
  const std::string copy = R"({"source": "llama", "destination": "mine"})";
  const std::string mine = R"({"model": "mine"})";
  const auto as = [](const char* key) { return fmt::format("Authorization: Bearer {}\r\n", key); };
  const auto erase = [](const ServerProcess& server, const std::string& body,
                        const std::string& key) {
    return server.send(http_request("DELETE", "/api/delete", body, key)).status;
  };
  {
    const ServerProcess server = serve();
    EXPECT_EQ(server.post("/api/copy", copy).status, 403);
    EXPECT_EQ(erase(server, R"({"model": "llama"})", ""), 403);
    EXPECT_EQ(server.send(http_request("DELETE", "/models?model=llama")).status, 403);
    const HttpAnswer pull = server.post("/api/pull", R"({"model": "mistral"})");
    EXPECT_EQ(pull.status, 501);
    EXPECT_THAT(pull.body, HasSubstr("ktx-compile"));
    EXPECT_THAT(server.post("/api/pull", R"({"model": "llama"})").body, HasSubstr("success"));
    EXPECT_EQ(server.post("/models", R"({"model": "x/y"})").status, 501);
  }
  const ServerProcess server = serve({"--edit-models", "--api-key-file", keys});
  EXPECT_EQ(server.post("/api/copy", copy).status, 401);
  EXPECT_EQ(server.post("/api/copy", copy, as("plain")).status, 403);
  EXPECT_EQ(erase(server, R"({"model": "llama"})", as("plain")), 403);
  EXPECT_EQ(server.post("/api/copy", copy, as("editor")).status, 200);
  EXPECT_EQ(server.post("/api/copy", R"({"source": "llama", "destination": "../x"})", as("editor"))
                .status,
            400);
  EXPECT_EQ(server.post("/v1/chat/completions", ask("mine"), as("plain")).status, 200);
  EXPECT_EQ(erase(server, mine, as("editor")), 200);
  EXPECT_EQ(erase(server, mine, as("editor")), 404);
  EXPECT_EQ(erase(server, R"({"model": "../llama"})", as("editor")), 404);
  EXPECT_EQ(server.post("/v1/chat/completions", ask("mine"), as("plain")).status, 404);
  EXPECT_TRUE(std::filesystem::exists(dir_.path("llama.ktxplan")));
}

TEST_F(ServeModels, NewPlansOfTheFolderAppear) {
  const ServerProcess server = serve();
  EXPECT_EQ(server.post("/v1/chat/completions", ask("new")).status, 404);
  std::filesystem::copy_file(plans_->path("qwen2.ktxplan"), dir_.path("new.ktxplan"));
  EXPECT_THAT(server.get("/models?reload=1").body, HasSubstr(R"("id":"new")"));
  EXPECT_EQ(server.post("/v1/chat/completions", ask("new")).status, 200);
}

TEST_F(ServeModels, WhatDoesNotGoTogetherIsSaidAtTheStart) {
  const auto fails = [](std::vector<std::string> args) {
    args.insert(args.begin(), {ktx_run(), "serve", "--port=0"});
    const auto result = run_program(args);
    EXPECT_NE(result.status, 0);
    return result.err;
  };
  const TempDir empty;
  const std::string one = plans_->path("llama.ktxplan");
  EXPECT_THAT(fails({empty.path()}), HasSubstr("is a folder without a plan"));
  EXPECT_THAT(fails({dir_.path(), "--name", "x"}), HasSubstr("--name is for one plan"));
  EXPECT_THAT(fails({one, dir_.path("llama.ktxplan")}), HasSubstr("the same name"));
  EXPECT_THAT(fails({one, dir_.path("none.ktxplan")}), HasSubstr("no such file"));
  EXPECT_THAT(fails({one, dir_.path("broken.ktxplan")}), HasSubstr("20000 bytes"));
  EXPECT_THAT(fails({one, "--sleep-idle-seconds", "5", "--profile", empty.path("p")}),
              HasSubstr("--profile needs the model all the time"));
}

}  // namespace
}  // namespace ktx::testing
