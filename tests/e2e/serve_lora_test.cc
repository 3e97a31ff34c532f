// Adapters of a server: llama.cpp's `lora` and /lora-adapters, and adapters named as models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lib/input/gguf.h"
#include "tests/support/http_client.h"
#include "tests/support/lora_gguf.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ServeLora : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const auto gguf = input::GgufFile::open(model_gguf("llama"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    ASSERT_TRUE(write_lora(*gguf, {.rank = 8, .alpha = 32, .seed = 1}, dir_->path("poet.gguf")));
    ASSERT_TRUE(write_lora(*gguf, {.rank = 4, .alpha = 16, .seed = 2}, dir_->path("clerk.gguf")));
    const Finished run =
        run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", dir_->path("llama.ktxplan"),
                     source_dir() + "/rules/cpu-only.yaml"});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = new ServerProcess({dir_->path("llama.ktxplan"), "--max-batch", "4", "--ctx", "512",
                                 "--lora", dir_->path("poet.gguf") + ":0", "--lora",
                                 dir_->path("clerk.gguf") + ":0", "--strict-model"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static json ask(const std::string& path, const json& body, int status = 200) {
    const HttpAnswer answer = server_->post(path, body.dump());
    EXPECT_EQ(answer.status, status) << answer.body;
    return answer.json();
  }
  // Greedy, with what of the prompt was cached.
  static json complete(const json& more) {
    json body = {{"prompt", kPrompt}, {"n_predict", 24}, {"temperature", 0}, {"ignore_eos", true}};
    body.update(more);
    return ask("/completion", body);
  }
  static std::string text(const json& more = json::object()) { return complete(more)["content"]; }

  // Longer than a block of the cache.
  static inline const std::string kPrompt = [] {
    std::string prompt;
    for (int i = 0; i < 40; ++i) prompt += "The sea " + std::to_string(i * i) + " rose. ";
    return prompt;
  }();
  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* ServeLora::dir_ = nullptr;
ServerProcess* ServeLora::server_ = nullptr;

json use(int id, double scale = 1) {
  return {{{"id", id}, {"scale", scale}}};
}

TEST_F(ServeLora, RequestsChooseAdaptersByField) {
  const std::string base = text(), poet = text({{"lora", use(0)}});
  const std::string clerk = text({{"lora", use(1)}});
  EXPECT_NE(base, poet);
  EXPECT_NE(base, clerk);
  EXPECT_NE(poet, clerk);
  EXPECT_EQ(text({{"lora", json::array()}}), base);
  EXPECT_EQ(text({{"lora", use(0, 0)}}), base);
  // The command line's adapter gives the same text.
  const Finished run = run_program({ktx_run(), "generate", dir_->path("llama.ktxplan"), "--lora",
                                    dir_->path("poet.gguf"), "--prompt", kPrompt, "-n", "24",
                                    "--temp", "0", "--ctx", "512", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string alone = json::parse(run.out)["text"];
  EXPECT_EQ(poet.substr(0, alone.size()), alone);
  EXPECT_FALSE(alone.empty());
}

TEST_F(ServeLora, RequestsNameAdaptersAsModels) {
  const auto answer = [&](const std::string& model) {
    return ask("/v1/completions", {{"model", model},
                                   {"prompt", kPrompt},
                                   {"max_tokens", 24},
                                   {"temperature", 0},
                                   {"ignore_eos", true}})["choices"][0]["text"]
        .get<std::string>();
  };
  EXPECT_EQ(answer("llama"), text());
  EXPECT_EQ(answer("poet"), text({{"lora", use(0)}}));
  EXPECT_EQ(answer("clerk"), text({{"lora", use(1)}}));
  ask("/v1/completions", {{"model", "singer"}, {"prompt", "a"}}, 404);
  const json models = server_->get("/v1/models").json()["data"];
  ASSERT_EQ(models.size(), 3u) << models;
  EXPECT_EQ(models[1]["id"], "poet");
  EXPECT_EQ(models[1]["parent"], "llama");
  // Ollama's and Anthropic's clients, and embeddings.
  const auto ollama = [&](const std::string& model) {
    return ask("/api/generate",
               {{"model", model},
                {"prompt", "The sea"},
                {"raw", true},
                {"stream", false},
                {"options", {{"temperature", 0}, {"num_predict", 16}}}})["response"];
  };
  EXPECT_NE(ollama("poet"), ollama("llama"));
  const auto vector = [&](const std::string& model) {
    return ask("/v1/embeddings", {{"model", model}, {"input", "The sea"}})["data"][0]["embedding"];
  };
  EXPECT_NE(vector("poet"), vector("llama"));
  EXPECT_EQ(vector("poet:latest"), vector("poet"));
  EXPECT_EQ(ollama("poet:latest"), ollama("poet"));
  const json chosen = ask("/v1/embeddings", {{"input", "The sea"}, {"lora", use(0)}});
  EXPECT_EQ(chosen["data"][0]["embedding"], vector("poet"));
  // Within others, and as settings say.
  const json instance = {{"@requestFormat", "completion"},
                         {"prompt", kPrompt},
                         {"model", "poet"},
                         {"n_predict", 8},
                         {"temperature", 0},
                         {"ignore_eos", true}};
  const json inner = ask("/predict", {{"instances", {instance}}})["predictions"][0];
  EXPECT_EQ(inner["generation_settings"]["lora"], use(0)) << inner;
  EXPECT_EQ(inner["content"], complete({{"model", "poet"}, {"n_predict", 8}})["content"]);
}

TEST_F(ServeLora, TheServersScalesAreSetAndListed) {
  const std::string base = text();
  EXPECT_GT(server_->get("/plan").json()["memory"].value("adapters", 0), 100000);
  json list = server_->get("/lora-adapters").json();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["id"], 0);
  EXPECT_EQ(list[0]["name"], "poet");
  EXPECT_EQ(list[0]["scale"], 0.0);
  EXPECT_THAT(list[1]["path"].get<std::string>(), HasSubstr("clerk.gguf"));
  ask("/lora-adapters", {{{"id", 1}, {"scale", 2}}});
  EXPECT_EQ(server_->get("/lora-adapters").json()[1]["scale"], 2.0);
  const std::string twice = text();
  EXPECT_NE(twice, base);
  EXPECT_EQ(twice, text({{"lora", use(1, 2)}}));
  EXPECT_EQ(text({{"lora", json::array()}}), base);
  ask("/lora-adapters", json::array());
  EXPECT_EQ(text(), base);
}

TEST_F(ServeLora, NothingIsReusedOfOtherAdapters) {
  const json none = complete({{"lora", use(0, 0.25)}});
  EXPECT_EQ(none["timings"]["cache_n"], 0) << none["timings"];
  const json again = complete({{"lora", use(0, 0.25)}});
  EXPECT_GT(again["timings"]["cache_n"], 64);
  EXPECT_EQ(again["content"], none["content"]);
  EXPECT_EQ(complete({{"lora", use(0, 0.125)}})["timings"]["cache_n"], 0);
}

TEST_F(ServeLora, AnswersInOneBatchAreThoseOfEachAlone) {
  std::vector<json> choices = {json::array(), use(0), use(1), use(0, -0.5)};
  std::vector<std::string> alone(choices.size()), together(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) alone[i] = text({{"lora", choices[i]}});
  std::vector<std::thread> threads;
  for (size_t i = 0; i < choices.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = text({{"lora", choices[i]}, {"n_predict", 24}}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST_F(ServeLora, MistakesNameTheField) {
  const auto message = [&](const json& lora) {
    return ask("/completion", {{"prompt", "a"}, {"lora", lora}}, 400)["error"]["message"]
        .get<std::string>();
  };
  EXPECT_THAT(message(use(2)), HasSubstr("lora.id"));
  EXPECT_THAT(message(use(0, 1e9)), HasSubstr("lora.scale"));
  EXPECT_THAT(message({{{"scale", 1}}}), HasSubstr("'lora.id' is missing"));
  EXPECT_THAT(message({5}), HasSubstr("expected {\"id\", \"scale\"}"));
  EXPECT_THAT(message("poet"), HasSubstr("lora"));
  ask("/lora-adapters", use(7), 400);
  EXPECT_EQ(server_->post("/lora-adapters", "").status, 400);
  EXPECT_EQ(server_->post("/lora-adapters", "null").status, 400);
  EXPECT_EQ(server_->post("/lora-adapters", R"([], "x": 1)").status, 400);
}

TEST_F(ServeLora, SlotsWithAdaptersAreNotSaved) {
  const TempDir slots;
  ServerProcess server({dir_->path("llama.ktxplan"), "--max-batch", "1", "--ctx", "512", "--lora",
                        dir_->path("poet.gguf"), "--slot-dir", slots.path()});
  const json body = {{"prompt", kPrompt}, {"n_predict", 4}, {"temperature", 0}};
  ASSERT_EQ(server.post("/completion", body.dump()).status, 200);
  const HttpAnswer saved = server.post("/slots/0?action=save", R"({"filename": "x.slot"})");
  EXPECT_EQ(saved.status, 500);
  EXPECT_THAT(saved.body, HasSubstr("computed with adapters"));
  EXPECT_EQ(server.post("/slots/0?action=erase", "").status, 200);
  const json fresh = server.post("/completion", body.dump()).json();
  EXPECT_EQ(fresh["timings"]["cache_n"], 0) << fresh["timings"];
}

TEST_F(ServeLora, OptionsThatCannotBeAreRefusedAtTheStart) {
  const std::string plan = dir_->path("llama.ktxplan"), poet = dir_->path("poet.gguf");
  const auto error = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {ktx_run(), "generate", plan, "--prompt", "a", "-n", "1"});
    const Finished run = run_program(args);
    EXPECT_EQ(run.status, 1);
    return run.err;
  };
  EXPECT_THAT(error({"--lora", poet, "--lora", poet + ":0.5"}),
              HasSubstr("two adapters are named 'poet'"));
  EXPECT_THAT(error({"--lora", poet + ":much"}), HasSubstr("poet.gguf:much: "));
  EXPECT_THAT(error({"--lora", model_gguf("llama")}), HasSubstr("general.type is 'model'"));
  const Finished several = run_program({ktx_run(), "serve", dir_->path(), "--lora", poet});
  EXPECT_EQ(several.status, 1);
  EXPECT_THAT(several.err, HasSubstr("an adapter belongs to one model"));
  const std::string same = dir_->path("llama.gguf");
  std::filesystem::copy_file(poet, same);
  const Finished named = run_program({ktx_run(), "serve", plan, "--port", "0", "--lora", same});
  EXPECT_EQ(named.status, 1);
  EXPECT_THAT(named.err, HasSubstr("the model has the name 'llama' as well"));
}

// Scales are all keys': a key without the right does not set them.
TEST_F(ServeLora, KeysNeedARightToSetScales) {
  const TempDir keys;
  const std::string file = keys.write("keys", "sk-one\nsk-two models=edit\n");
  ServerProcess server({dir_->path("llama.ktxplan"), "--ctx", "512", "--lora",
                        dir_->path("poet.gguf"), "--api-key-file", file});
  const auto set = [&](const std::string& key) {
    return server.post("/lora-adapters", "[]", "Authorization: Bearer " + key + "\r\n").status;
  };
  EXPECT_EQ(set("sk-one"), 403);
  EXPECT_EQ(set("sk-two"), 200);
}

TEST(ServeWithoutLora, RefusesTheFieldAndListsNothing) {
  const TempDir dir;
  const Finished run =
      run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", dir.path("llama.ktxplan")});
  ASSERT_EQ(run.status, 0) << run.err;
  ServerProcess server({dir.path("llama.ktxplan"), "--max-batch", "1", "--ctx", "128"});
  EXPECT_EQ(server.get("/lora-adapters").body, "[]");
  const HttpAnswer answer =
      server.post("/completion", R"({"prompt": "a", "lora": [{"id": 0, "scale": 1}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("start it with --lora FILE"));
  EXPECT_EQ(server.post("/completion", R"({"prompt": "a", "lora": [], "n_predict": 1})").status,
            200);
}

}  // namespace
}  // namespace ktx::testing
