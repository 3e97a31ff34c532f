// ktx-run serve FOLDER --allow-pull: models that clients fetch, from a hub on this machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/fake_hub.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// The programs that a process has started and that still run: "ktx-pull".
std::vector<std::pair<pid_t, std::string>> children_of(pid_t parent) {
  std::vector<std::pair<pid_t, std::string>> all;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    const std::string stat = read_file(entry.path() / "stat");
    const size_t open = stat.find('('), close = stat.rfind(") ");
    if (open == stat.npos || close == stat.npos) continue;
    std::istringstream rest(stat.substr(close + 2));
    std::string state;
    pid_t of = 0;
    rest >> state >> of;
    if (of != parent || state == "Z") continue;
    all.emplace_back(std::stoi(stat), stat.substr(open + 1, close - open - 1));
  }
  return all;
}

// One that has ended may wait for a parent that takes note of it.
bool runs(pid_t pid) {
  const std::string stat = read_file(fmt::format("/proc/{}/stat", pid));
  return !stat.empty() && stat.find(") Z ") == stat.npos;
}

class ServePull : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(binary_dir() + "/ktx-pull")) {
      GTEST_SKIP() << "there is no ktx-pull in this build (libcurl)";
    }
    if (run_program({"/bin/sh", "-c", "command -v python3"}).status != 0) {
      GTEST_SKIP() << "no python3";
    }
    fs::create_directories(hub + "/o/small-GGUF");
    fs::create_directories(models);
    fs::copy_file(model_gguf("llama"), hub + "/o/small-GGUF/small-Q4_K_M.gguf");
    fs::copy_file(model_gguf("qwen2"), hub + "/o/small-GGUF/small-Q8_0.gguf");
    dir.write("hub/o/large-GGUF/large-Q4_K_M.gguf", std::string(6u << 20, 'x'));
    dir.write("hub/o/third-GGUF/third-Q4_K_M.gguf", std::string(6u << 20, 'y'));
  }
  ServerProcess serve(const FakeHub& from, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {models, "--allow-pull", "-t", "2", "--max-batch", "2"});
    return ServerProcess(more, environment(from, cache));
  }
  static std::vector<std::string> environment(const FakeHub& from, const std::string& cache) {
    return {"/usr/bin/env", "KTX_CACHE=" + cache, "HF_ENDPOINT=" + from.url(),
            "HF_TOKEN=",    "no_proxy=127.0.0.1", "http_proxy="};
  }
  // Bytes of files that were fetched, by all requests.
  static uint64_t bytes_fetched(const FakeHub& from) {
    uint64_t bytes = 0;
    for (const json& request : from.requests()) {
      if (request["host"] != "cdn") continue;
      const std::string range = request["range"].get<std::string>().substr(6);
      const size_t dash = range.find('-');
      bytes += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(0, dash)) + 1;
    }
    return bytes;
  }
  static std::string pull(const std::string& model, bool stream = true) {
    return json{{"model", model}, {"stream", stream}}.dump();
  }
  static std::string chat(const std::string& model) {
    return json{{"model", model}, {"prompt", "Hi"}, {"max_tokens", 4}, {"temperature", 0}}.dump();
  }
  static size_t pulls_of(const ServerProcess& server) {
    size_t count = 0;
    for (const auto& [pid, name] : children_of(server.pid())) count += name == "ktx-pull" ? 1 : 0;
    return count;
  }
  // Sends it and reads until the fetch has begun.
  static Connection begin(const ServerProcess& server, const std::string& model) {
    Connection connection(server.port());
    connection.send(http_request("POST", "/api/pull", pull(model)));
    std::string text;
    while (text.find("\"total\"") == text.npos) {
      const std::string more = connection.receive();
      if (more.empty()) break;
      text += more;
    }
    EXPECT_THAT(text, HasSubstr("200 OK"));
    EXPECT_THAT(text, HasSubstr("pulling manifest"));
    return connection;
  }
  static std::string rest_of(Connection& connection) {
    std::string text;
    for (std::string more; text.find("0\r\n\r\n") == text.npos;) {
      if ((more = connection.receive()).empty()) break;
      text += more;
    }
    return text;
  }

  TempDir dir;
  std::string cache = dir.path("cache"), hub = dir.path("hub"), models = dir.path("models");
};

TEST_F(ServePull, APulledModelIsServed) {
  const FakeHub from(hub);
  const ServerProcess server = serve(from);
  EXPECT_EQ(server.get("/props").json()["allow_pull"], true);
  const HttpAnswer answer = server.post("/api/pull", pull("hf:o/small-GGUF"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/x-ndjson");
  const std::vector<json> lines = answer.events();
  ASSERT_GT(lines.size(), 3u) << answer.body;
  EXPECT_EQ(lines.front(), (json{{"status", "pulling manifest"}}));
  EXPECT_EQ(lines.back(), (json{{"status", "success"}}));
  bool whole = false, compiles = false;
  for (const json& line : lines) {
    compiles = compiles || line["status"] == "compiling";
    if (!line.contains("digest")) continue;
    EXPECT_THAT(line["status"].get<std::string>(),
                HasSubstr("pulling " + line["digest"].get<std::string>().substr(7, 12)));
    EXPECT_LE(line["completed"], line["total"]);
    whole = whole || line["completed"] == line["total"];
  }
  EXPECT_TRUE(whole && compiles) << answer.body;
  EXPECT_EQ(server.get("/api/tags").json()["models"][0]["name"], "hf.co/o/small-GGUF:latest");
  for (const char* name : {"hf.co/o/small-GGUF", "hf:o/small-GGUF", "hf.co/O/Small-gguf:latest"}) {
    EXPECT_EQ(server.post("/v1/completions", chat(name)).status, 200) << name;
  }
  // The model is there once, and is up to date without the hub.
  EXPECT_FALSE(fs::exists(cache + "/models/o/small-GGUF/small-Q4_K_M.gguf"));
  EXPECT_TRUE(fs::exists(models + "/hf.co/o/small-GGUF.ktxplan"));
  const size_t asked = from.requests().size();
  EXPECT_THAT(server.post("/api/pull", pull("hf.co/o/small-gguf")).body, HasSubstr("success"));
  EXPECT_EQ(from.requests().size(), asked);
  const HttpAnswer other = server.post("/api/pull", pull("hf.co/o/small-GGUF:q8_0", false));
  EXPECT_EQ(other.json(), (json{{"status", "success"}})) << other.body;
  EXPECT_EQ(server.post("/v1/completions", chat("hf.co/o/small-GGUF:Q8_0")).status, 200);
}

TEST_F(ServePull, AModelThatAFirstStartHasMovedIsNotFetchedAgain) {
  const FakeHub from(hub);
  const std::vector<std::string> environment = {"KTX_CACHE=" + cache, "HF_ENDPOINT=" + from.url(),
                                                "no_proxy=127.0.0.1", "http_proxy="};
  ASSERT_EQ(run_program({ktx_run(), "generate", "hf:o/small-GGUF", "--prompt", "Hi", "-n", "1"}, "",
                        environment)
                .status,
            0);
  const size_t asked = from.requests().size();
  const ServerProcess server = serve(from);
  const HttpAnswer answer = server.post("/api/pull", pull("hf:o/small-GGUF"));
  EXPECT_EQ(answer.events().back(), (json{{"status", "success"}})) << answer.body;
  EXPECT_EQ(from.requests().size(), asked);
  EXPECT_EQ(server.post("/v1/completions", chat("hf:o/small-GGUF")).status, 200);
}

TEST_F(ServePull, NamesAreThoseOfAHub) {
  const FakeHub from(hub);
  const ServerProcess server = serve(from);
  for (const std::string name :
       {"", "mistral", "../x", "hf:o/../x", "hf:../../etc/passwd", "/etc/passwd", "hf:o/n:../../q",
        "hf.co/o/n@v1", "hf:-o/n", "hf.co/o/n\n--list", "file:///etc/passwd", "https://other/o/n",
        "registry.ollama.ai/library/llama3"}) {
    const HttpAnswer answer = server.post("/api/pull", pull(name));
    EXPECT_EQ(answer.status, 400) << name << answer.body;
    EXPECT_TRUE(answer.json()["error"].is_string());
  }
  EXPECT_EQ(server.post("/api/pull", pull("hf:o/" + std::string(100000, 'x'))).status, 400);
  EXPECT_EQ(server.post("/api/pull", R"({"model": 3})").status, 400);
  EXPECT_TRUE(from.requests().empty());
  const HttpAnswer none = server.post("/api/pull", pull("hf:o/none"));
  EXPECT_EQ(none.status, 200);
  EXPECT_THAT(none.events().back()["error"].get<std::string>(), HasSubstr("no such model"));
  const HttpAnswer whole = server.post("/api/pull", pull("hf:o/none", false));
  EXPECT_EQ(whole.status, 500);
  EXPECT_THAT(whole.json()["error"].get<std::string>(), HasSubstr("no such model"));
  // What is no model is an error without paths of this machine.
  const HttpAnswer wrong = server.post("/api/pull", pull("hf:o/large-GGUF"));
  EXPECT_THAT(wrong.events().back()["error"].get<std::string>(), HasSubstr("GGUF"));
  EXPECT_THAT(wrong.body, Not(HasSubstr(dir.path())));
  // Nor does it stay, or leave a folder.
  EXPECT_FALSE(fs::exists(cache + "/models/o/large-GGUF/large-Q4_K_M.gguf"));
  EXPECT_FALSE(fs::exists(models + "/hf.co"));
}

TEST_F(ServePull, FoldersMayBeRelative) {
  const FakeHub from(hub);
  std::vector<std::string> launcher = environment(from, "cache");
  launcher.insert(launcher.begin() + 1, {"-C", dir.path()});
  const ServerProcess server({"models", "--allow-pull", "-t", "2"}, launcher);
  const HttpAnswer wrong = server.post("/api/pull", pull("hf:o/large-GGUF"));
  EXPECT_THAT(wrong.events().back()["error"].get<std::string>(), HasSubstr("the cache/models/o/"));
  EXPECT_THAT(wrong.body, Not(HasSubstr(dir.path())));
  EXPECT_THAT(server.post("/api/pull", pull("hf:o/small-GGUF")).body, HasSubstr("success"));
  EXPECT_TRUE(fs::exists(models + "/hf.co/o/small-GGUF.ktxplan"));
}

TEST_F(ServePull, AnEmptyFolderIsServedWhereModelsMayCome) {
  const ServerProcess server({models, "-t", "2"}, {"/usr/bin/env", "KTX_SERVE_ALLOW_PULL=on"});
  EXPECT_EQ(server.get("/props").json()["allow_pull"], true);
  const Finished off =
      run_program({ktx_run(), "serve", models, "--port=0"}, "", {"KTX_SERVE_ALLOW_PULL=off"});
  EXPECT_EQ(off.status, 2);
  EXPECT_THAT(off.err, HasSubstr("without a plan"));
}

TEST_F(ServePull, OnlyKeysThatMayEdit) {
  const FakeHub from(hub);
  const std::string keys = dir.write("keys", "plain\neditor models=edit\n");
  const auto as = [](const char* key) { return fmt::format("Authorization: Bearer {}\r\n", key); };
  {
    const ServerProcess server = serve(from, {"--api-key-file", keys});
    EXPECT_EQ(server.post("/api/pull", pull("hf:o/small-GGUF")).status, 401);
    const HttpAnswer refused = server.post("/api/pull", pull("hf:o/small-GGUF"), as("plain"));
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("models=edit"));
    EXPECT_EQ(server.get("/props", as("plain")).json()["allow_pull"], false);
    EXPECT_EQ(server.get("/props", as("editor")).json()["allow_pull"], true);
    EXPECT_THAT(server.post("/api/pull", pull("hf:o/small-GGUF"), as("editor")).body,
                HasSubstr("success"));
  }
  const ServerProcess server({models, "-t", "2"});
  EXPECT_EQ(server.get("/props").json()["allow_pull"], false);
  const HttpAnswer off = server.post("/api/pull", pull("hf:o/other"));
  EXPECT_EQ(off.status, 501);
  EXPECT_THAT(off.body, HasSubstr("--allow-pull"));
  const auto fails = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {ktx_run(), "serve", "--port=0", "--allow-pull"});
    const Finished run = run_program(words);
    EXPECT_NE(run.status, 0);
    return run.err;
  };
  EXPECT_THAT(fails({models + "/hf.co/o/small-GGUF.ktxplan"}),
              HasSubstr("name one, ktx-run serve"));
  EXPECT_THAT(fails({models, "--sandbox"}), HasSubstr("--sandbox allows none"));
  EXPECT_THAT(fails({models, "--host", "0.0.0.0"}), HasSubstr("require keys"));
  EXPECT_THAT(fails({models, "--cors", "*"}), HasSubstr("every web page"));
}

TEST_F(ServePull, OneFetchServesAllClients) {
  const FakeHub from(hub, {"--slow", "0.2"});
  const ServerProcess server = serve(from);
  Connection first = begin(server, "hf:o/small-GGUF");
  Connection second = begin(server, "hf.co/O/small-gguf");
  EXPECT_EQ(pulls_of(server), 1u);
  first.close();  // the other one still waits
  EXPECT_THAT(rest_of(second), HasSubstr("\"success\""));
  EXPECT_EQ(bytes_fetched(from), fs::file_size(hub + "/o/small-GGUF/small-Q4_K_M.gguf"));
}

TEST_F(ServePull, TwoNamesOfAFileFetchItOnce) {
  const FakeHub from(hub, {"--slow", "0.1"});
  const ServerProcess server = serve(from);
  Connection first = begin(server, "hf:o/small-GGUF");
  const HttpAnswer second = server.post("/api/pull", pull("hf:o/small-GGUF:Q4_K_M"));
  EXPECT_THAT(second.body, HasSubstr("waiting for another fetch"));
  EXPECT_EQ(second.events().back(), (json{{"status", "success"}})) << second.body;
  EXPECT_THAT(rest_of(first), HasSubstr("\"success\""));
  EXPECT_EQ(bytes_fetched(from), fs::file_size(hub + "/o/small-GGUF/small-Q4_K_M.gguf"));
  for (const char* name : {"small-GGUF", "small-GGUF:Q4_K_M"}) {
    EXPECT_TRUE(fs::exists(fmt::format("{}/hf.co/o/{}.ktxplan", models, name))) << name;
  }
  EXPECT_FALSE(fs::exists(cache + "/models/o/small-GGUF/small-Q4_K_M.gguf"));
}

// By itself it takes some 19 seconds: 96 pieces of 64 KiB.
TEST_F(ServePull, AFetchEndsWithItsLastClient) {
  const FakeHub from(hub, {"--slow", "0.2"});
  const ServerProcess server = serve(from);
  const auto started = std::chrono::steady_clock::now();
  begin(server, "hf:o/large-GGUF").close();
  await([&] { return pulls_of(server) == 0; });
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(15));
  EXPECT_TRUE(fs::exists(cache + "/models/o/large-GGUF/large-Q4_K_M.gguf.work"));
  HttpAnswer answer;
  await([&] { return (answer = server.post("/api/pull", pull("hf:o/none"))).status == 200; });
}

TEST_F(ServePull, AKilledProgramIsAnError) {
  const FakeHub from(hub, {"--slow", "0.2"});
  const ServerProcess server = serve(from);
  Connection one = begin(server, "hf:o/large-GGUF");
  for (const auto& [pid, name] : children_of(server.pid())) kill(pid, SIGKILL);
  EXPECT_THAT(rest_of(one), HasSubstr("ktx-pull ended with status 137"));
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST_F(ServePull, AtMostSoManyOfAKey) {
  const FakeHub from(hub, {"--slow", "0.2"});
  const ServerProcess server = serve(from);
  const Connection one = begin(server, "hf:o/large-GGUF");
  const Connection two = begin(server, "hf:o/third-GGUF");
  const HttpAnswer third = server.post("/api/pull", pull("hf:o/small-GGUF"));
  EXPECT_EQ(third.status, 429) << third.body;
  EXPECT_EQ(third.headers.count("retry-after"), 1u);
}

TEST_F(ServePull, ADiskThatIsTooSmallIsAnError) {
  const json answer = {
      {"sha", "0123456789abcdef0123456789abcdef01234567"},
      {"siblings",
       {{{"rfilename", "small-Q4_K_M.gguf"},
         {"lfs", {{"size", uint64_t{1} << 49}, {"sha256", std::string(64, 'a')}}}}}}};
  const FakeHub from(hub, {"--answer", answer.dump()});
  const ServerProcess server = serve(from);
  const HttpAnswer full = server.post("/api/pull", pull("hf:o/small-GGUF"));
  EXPECT_THAT(full.events().back()["error"].get<std::string>(), HasSubstr(" are free"));
  EXPECT_THAT(full.body, Not(HasSubstr(dir.path())));
  for (const json& request : from.requests()) EXPECT_EQ(request["host"], "hub");
}

TEST_F(ServePull, ShutdownEndsIt) {
  const FakeHub from(hub, {"--slow", "0.2"});
  ServerProcess server = serve(from);
  Connection one = begin(server, "hf:o/large-GGUF");
  const auto children = children_of(server.pid());
  ASSERT_EQ(children.size(), 1u);
  EXPECT_EQ(server.stop(SIGTERM), 0);
  EXPECT_THAT(rest_of(one), HasSubstr("shutting down"));
  EXPECT_FALSE(runs(children[0].first)) << "the program ends before the server";
}

// A program ends when its next line of progress has no reader.
TEST_F(ServePull, AServerThatIsKilledLeavesNoProgram) {
  const FakeHub from(hub, {"--slow", "0.05"});
  ServerProcess server = serve(from);
  const Connection one = begin(server, "hf:o/large-GGUF");
  const auto children = children_of(server.pid());
  ASSERT_EQ(children.size(), 1u);
  server.stop(SIGKILL);
  await([&] { return !runs(children[0].first); });
  EXPECT_FALSE(fs::exists(cache + "/models/o/large-GGUF/large-Q4_K_M.gguf"));
}

}  // namespace
}  // namespace ktx::testing
