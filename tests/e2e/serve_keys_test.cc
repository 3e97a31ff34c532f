// Several API keys at one server: no data of one key (texts of slots, their files, cached
// prefixes) is visible in answers to another key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAlpha = "Authorization: Bearer alpha-key\r\n";
constexpr const char* kBeta = "Authorization: Bearer beta-key\r\n";
constexpr const char* kSecret = "The secret word of alpha is marmalade and nobody else knows it";

class ServeKeys : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = new TempDir;
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  }
  static void TearDownTestSuite() { delete models_; }
  static std::string plan() { return models_->path("m.ktxplan"); }
  static std::vector<std::string> two_keys(const std::string& folder) {
    return {plan(), "--api-key",   "alpha-key", "--api-key", "beta-key", "--slot-dir",
            folder, "--max-batch", "2",         "-t",        "2"};
  }
  static json secret_request() {
    return {{"prompt", kSecret}, {"max_tokens", 4}, {"temperature", 0}};
  }
  // What differs from run to run goes.
  static std::string told(const HttpAnswer& answer) {
    json body = answer.json();
    if (body.is_object()) {
      for (const char* key : {"id", "created"}) body.erase(key);
      if (body.contains("timings")) {
        body["timings"] = {{"cache_n", body["timings"]["cache_n"]},
                           {"cache_miss", body["timings"]["cache_miss"]}};
      }
    }
    return std::to_string(answer.status) + " " + body.dump();
  }

  static TempDir* models_;
};
TempDir* ServeKeys::models_ = nullptr;

// Every request of beta to a server that alpha used, and to an unused one.
TEST_F(ServeKeys, OneKeySeesNothingOfAnother) {
  const TempDir used_folder, new_folder;
  const ServerProcess used(two_keys(used_folder.path())), unused(two_keys(new_folder.path()));
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer answer = used.post("/v1/completions", secret_request().dump(), kAlpha);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const std::string slot = "/slots/" + std::to_string(i);
    ASSERT_EQ(used.post(slot + "?action=save", R"({"filename": "x.slot"})", kAlpha).status, 200);
  }
  json longer = secret_request();
  longer["prompt"] = std::string(kSecret) + " but beta";
  const std::pair<std::string, std::string> kProbes[] = {
      {"/v1/completions", R"({"resume_slot": 0, "echo": true, "max_tokens": 0})"},
      {"/v1/completions", R"({"resume_slot": 1, "echo": true, "max_tokens": 4})"},
      {"/v1/chat/completions", R"({"resume_slot": 0, "max_tokens": 4})"},
      {"/slots/0?action=restore", R"({"filename": "x.slot"})"},
      {"/slots/1?action=restore", R"({"filename": "no such file"})"},
      {"/slots/1?action=restore", R"({"filename": "nothing"})"},
      {"/slots/0?action=restore", R"({"filename": "../x.slot"})"},
      {"/slots/0?action=restore", R"({"filename": ".keys"})"},
      {"/slots/0?action=erase", "{}"},
      {"/slots/1?action=erase", "{}"},
      {"/slots/0?action=save", R"({"filename": "x.slot"})"},
      {"/slots/0?action=restore", R"({"filename": "x.slot"})"},
      {"/v1/completions", longer.dump()},  // what is cached of it is alpha's
      {"/v1/completions", secret_request().dump()},
      {"/v1/completions", secret_request().dump()},  // and now beta's own
  };
  json slots = used.get("/slots", kBeta).json();
  EXPECT_EQ(slots, unused.get("/slots", kBeta).json());
  ASSERT_EQ(slots.size(), 2u);
  for (const auto& [path, body] : kProbes) {
    const HttpAnswer answer = used.post(path, body, kBeta);
    EXPECT_EQ(told(answer), told(unused.post(path, body, kBeta))) << path << " " << body;
    EXPECT_THAT(answer.body, Not(HasSubstr(used_folder.path()))) << "the server's folders";
  }
  EXPECT_THAT(told(used.post("/v1/completions", secret_request().dump(), kBeta)),
              Not(HasSubstr("\"cache_n\":0")))
      << "what is one's own is found";

  // Alpha lost nothing by it.
  const HttpAnswer own = used.post("/slots/1?action=restore", R"({"filename": "x.slot"})", kAlpha);
  ASSERT_EQ(own.status, 200) << own.body;
  EXPECT_GT(own.json()["n_restored"], 5);
  const HttpAnswer resumed =
      used.post("/v1/completions", R"({"resume_slot": 1, "echo": true, "max_tokens": 1})", kAlpha);
  EXPECT_THAT(resumed.body, HasSubstr("marmalade"));
}

TEST_F(ServeKeys, ABusySlotLooksEmptyToOthers) {
  const TempDir folder;
  std::vector<std::string> args = two_keys(folder.path());
  args.insert(args.end(), {"--ctx", "16384"});  // an answer that fills it takes seconds
  const ServerProcess server(args);
  json endless = secret_request();
  endless["max_tokens"] = 100000;
  endless["ignore_eos"] = true;
  endless["stream"] = true;
  // Several tries: a client that waits for its turn on a busy machine may find the answer over.
  bool busy = false;
  for (int i = 0; i < 200 && !busy; ++i) {
    Connection client(server.port());
    client.send(http_request("POST", "/v1/completions", endless.dump(), kAlpha));
    ASSERT_FALSE(client.receive().empty());
    const json others = server.get("/slots", kBeta).json();
    for (const json& slot : server.get("/slots", kAlpha).json()) {
      busy |= slot["is_processing"].get<bool>();
    }
    for (const json& slot : others) {
      EXPECT_EQ(slot["is_processing"], false);
      EXPECT_EQ(slot["n_tokens"], 0);
      EXPECT_EQ(slot["id_task"], 0);
    }
  }
  EXPECT_TRUE(busy);
  for (const char* slot : {"/slots/0", "/slots/1"}) {
    const HttpAnswer erased = server.post(std::string(slot) + "?action=erase", "{}", kBeta);
    EXPECT_EQ(erased.status, 200) << erased.body;
    EXPECT_EQ(erased.json()["n_erased"], 0);
  }
}

TEST_F(ServeKeys, FilesOfTheSameNameAreApartAndTellNoKey) {
  const TempDir folder;
  const auto restored = [](const ServerProcess& server, const char* key) {
    const HttpAnswer answer =
        server.post("/slots/0?action=restore", R"({"filename": "x.slot"})", key);
    return answer.status == 200 ? answer.json()["tokens"] : json(answer.status);
  };
  const auto save = [](const ServerProcess& server, const std::string& text, const char* key) {
    const json body = {{"prompt", text}, {"max_tokens", 1}, {"temperature", 0}};
    ASSERT_EQ(server.post("/v1/completions", body.dump(), key).status, 200);
    int best = 0;
    for (const json& slot : server.get("/slots", key).json()) {
      if (slot["n_tokens"] > 0) best = slot["id"];
    }
    const std::string path = "/slots/" + std::to_string(best) + "?action=save";
    ASSERT_EQ(server.post(path, R"({"filename": "x.slot"})", key).status, 200);
  };
  json alpha, beta;
  {
    const ServerProcess server(two_keys(folder.path()));
    save(server, kSecret, kAlpha);
    save(server, "What beta says", kBeta);
    alpha = restored(server, kAlpha);
    beta = restored(server, kBeta);
    EXPECT_GT(alpha.size(), beta.size());
  }
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("alpha-key")));
    if (entry.is_directory()) {
      struct stat info = {};
      ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0700) << entry.path();
      continue;
    }
    ++files;
    EXPECT_THAT(read_file(entry.path()), Not(HasSubstr("alpha-key")));
  }
  EXPECT_EQ(files, 2);
  {
    // After a restart a file is its key's, and no server without keys has it.
    const ServerProcess server(two_keys(folder.path()));
    EXPECT_EQ(restored(server, kBeta), beta);
    EXPECT_EQ(restored(server, kAlpha), alpha);
  }
  {
    const ServerProcess server({plan(), "--slot-dir", folder.path()});
    EXPECT_EQ(restored(server, ""), 400);
    save(server, "Everybody may read this", "");
    EXPECT_TRUE(restored(server, "").is_array());
  }
  {
    const ServerProcess server({plan(), "--slot-dir", folder.path(), "--api-key", "gamma"});
    EXPECT_EQ(restored(server, "X-Api-Key: gamma\r\n"), 400) << "everybody's is no key's";
  }
  // Moved to where another key's lie, a file is still its owner's.
  std::vector<std::filesystem::path> keyed;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/.keys")) {
    keyed.push_back(entry.path() / "x.slot");
  }
  ASSERT_EQ(keyed.size(), 2u);
  std::filesystem::rename(keyed[0], folder.path() + "/other");
  std::filesystem::rename(keyed[1], keyed[0]);
  std::filesystem::rename(folder.path() + "/other", keyed[1]);
  const ServerProcess server(two_keys(folder.path()));
  EXPECT_EQ(restored(server, kAlpha), 400);
  EXPECT_EQ(restored(server, kBeta), 400);
}

TEST_F(ServeKeys, KeysHaveLimitsAndTheirFileIsReadAgain) {
  const TempDir folder;
  const std::string file = folder.path("keys"), log = folder.path("log");
  std::ofstream(file) << "alpha-key name=alpha requests=2\nbeta-key tokens=50\n";
  ServerProcess server({plan(), "--api-key-file", file, "--access-log", log, "-t", "1"});
  const std::string body = secret_request().dump();
  const auto ask = [&](const char* key) { return server.post("/v1/completions", body, key); };
  EXPECT_EQ(ask(kAlpha).status, 200);
  EXPECT_EQ(server.post("/tokenize", R"({"content": "a"})", kAlpha).status, 200);
  const HttpAnswer refused = ask(kAlpha);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("rate_limit_exceeded"));
  EXPECT_GT(std::stoi(refused.headers.at("retry-after")), 20);
  EXPECT_EQ(server.get("/v1/models", kAlpha).status, 200) << "what computes nothing is free";

  // The prompt has 30 tokens and more: two answers are beyond 50.
  EXPECT_EQ(ask(kBeta).status, 200);
  EXPECT_EQ(ask(kBeta).status, 200);
  await([&] { return ask(kBeta).status == 429; });  // counted when the answer is out
  EXPECT_EQ(ask(kBeta).status, 429);

  std::ofstream(file) << "alpha-key\ngamma-key\n";
  kill(server.pid(), SIGHUP);
  await([&] { return server.log().find("read again, 2 keys") != std::string::npos; });
  EXPECT_EQ(ask(kBeta).status, 401);
  EXPECT_EQ(ask("Authorization: Bearer gamma-key\r\n").status, 200);
  EXPECT_EQ(ask(kAlpha).status, 200);
  // A broken file changes nothing.
  std::ofstream(file) << "alpha-key what\n";
  kill(server.pid(), SIGHUP);
  await([&] { return server.log().find("stay as they were") != std::string::npos; });
  EXPECT_THAT(server.log(), HasSubstr("keys:1: 'what' behind a key"));
  EXPECT_EQ(ask(kAlpha).status, 200);

  const json line = json::parse(read_file(log).substr(0, read_file(log).find('\n')));
  EXPECT_EQ(line["key"], "alpha");
  EXPECT_EQ(line["model"], "m");
  EXPECT_GT(line["completion_tokens"], 0);
  EXPECT_GT(line["prompt_tokens"], 10);
  EXPECT_THAT(line["request_id"].get<std::string>(), ::testing::StartsWith("req_"));
  EXPECT_THAT(read_file(log), Not(HasSubstr("alpha-key"))) << "keys are never written";
  EXPECT_THAT(read_file(log), HasSubstr("\"key 2\""));
}

TEST_F(ServeKeys, ARequestKeepsItsId) {
  const ServerProcess server({plan(), "-t", "1"});
  EXPECT_EQ(server.get("/health", "X-Request-Id: my-1:a\r\n").headers.at("x-request-id"), "my-1:a");
  EXPECT_THAT(server.get("/health", "X-Request-Id: a b\r\n").headers.at("x-request-id"),
              ::testing::StartsWith("req_"));
}

TEST_F(ServeKeys, PrefixesAreSharedOnlyByAnOption) {
  const auto cached = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {plan(), "--api-key", "alpha-key", "--api-key", "beta-key"};
    args.insert(args.end(), more.begin(), more.end());
    const ServerProcess server(args);
    server.post("/v1/completions", secret_request().dump(), kAlpha);
    const json answer = server.post("/v1/completions", secret_request().dump(), kBeta).json();
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached({}), 0);
  EXPECT_GT(cached({"--share-prefixes", "on"}), 0);
}

TEST_F(ServeKeys, FiguresOfAllKeysNeedAKeyThatMayReadThem) {
  const TempDir folder;
  folder.write("keys", "one\ntwo figures=all\n");
  const ServerProcess server({plan(), "-t", "1", "--api-key-file", folder.path("keys")});
  for (const char* path : {"/metrics", "/stats"}) {
    EXPECT_EQ(server.get(path, "Authorization: Bearer one\r\n").status, 403) << path;
    EXPECT_EQ(server.get(path, "Authorization: Bearer two\r\n").status, 200) << path;
  }
  // A server with a single key has no figures of others to protect.
  const ServerProcess alone({plan(), "-t", "1", "--api-key", "one", "--web-ui", "off"});
  EXPECT_EQ(alone.get("/metrics", "Authorization: Bearer one\r\n").status, 200);
  EXPECT_EQ(alone.get("/").status, 404);
}

TEST_F(ServeKeys, SettingsHaveAPrefixAndTheirOlderNames) {
  const auto name = [&](const char* value, const char* older) {
    if (value != nullptr) setenv("KTX_SERVE_NAME", value, 1);
    if (older != nullptr) setenv("KTX_NAME", older, 1);
    const ServerProcess server({plan(), "-t", "1"});
    unsetenv("KTX_SERVE_NAME");
    unsetenv("KTX_NAME");
    return server.get("/v1/models").json()["data"][0]["id"].get<std::string>();
  };
  EXPECT_EQ(name("new", nullptr), "new");
  EXPECT_EQ(name(nullptr, "older"), "older");
  EXPECT_EQ(name("new", "older"), "new");
}

}  // namespace
}  // namespace ktx::testing
