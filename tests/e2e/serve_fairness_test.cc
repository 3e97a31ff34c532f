// Keys share a server: a request of one is answered while another fills batch and queue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAnna = "Authorization: Bearer sk-anna\r\n";
constexpr const char* kBert = "Authorization: Bearer sk-bert\r\n";

class ServeFairness : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = new TempDir;
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  }
  static void TearDownTestSuite() { delete models_; }
  static std::string plan() { return models_->path("m.ktxplan"); }
  std::vector<std::string> args(const std::vector<std::string>& more = {}) {
    std::ofstream(dir_.path("keys"))
        << "sk-anna name=anna priority=2 figures=all\nsk-bert name=bert\n";
    std::vector<std::string> all = {plan(),           "-t",          "1", "--ctx",
                                    "16384",          "--max-batch", "4", "--api-key-file",
                                    dir_.path("keys")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string many(int n, int tokens, bool stream) {
    return json{{"prompt", "Once upon a time"},
                {"n", n},
                {"max_tokens", tokens},
                {"temperature", 0},
                {"seed", 7},
                {"ignore_eos", true},
                {"stream", stream}}
        .dump();
  }
  // What each choice of a stream said.
  static std::map<int, std::string> texts(const HttpAnswer& answer) {
    std::map<int, std::string> out;
    for (const json& event : answer.events()) {
      for (const json& choice : event["choices"]) {
        out[choice["index"].get<int>()] += choice["text"].get<std::string>();
      }
    }
    return out;
  }
  TempDir dir_;
  static TempDir* models_;
};
TempDir* ServeFairness::models_ = nullptr;

TEST_F(ServeFairness, SixteenAnswersOfAKeyHoldUpNoOtherKey) {
  const ServerProcess server(args({"--max-queue", "12"}));
  const auto figure = [&](const std::string& name) {
    return server.get("/stats", kAnna).json().value(name, -1.0);
  };
  const auto until = [&](const char* name, double value) {
    await([&] { return figure(name) == value; });
    EXPECT_EQ(figure(name), value) << name;
  };
  const auto three_answers = [&] {
    until("requests_running", 4);
    for (int i = 0; i < 3; ++i) {
      const HttpAnswer answer = server.post("/v1/completions", many(1, 2, false), kBert);
      EXPECT_EQ(answer.status, 200) << answer.body;
    }
  };
  {
    Connection hog(server.port());
    hog.send(http_request("POST", "/v1/completions", many(16, 3000, true), kAnna));
    until("requests_waiting", 12);  // the queue is full
    EXPECT_EQ(server.post("/v1/completions", many(1, 2, false), kAnna).status, 429) << "of its own";
    three_answers();
    // One that goes from the queue into the batch is in neither until the pass has ended.
    double unanswered = 0;
    await([&] {
      const json stats = server.get("/stats", kAnna).json();
      unanswered =
          stats["requests_waiting"].get<double>() + stats["requests_running"].get<double>();
      return unanswered >= 16;
    });
    EXPECT_GE(unanswered, 16) << "not one of the sixteen has ended";
  }
  until("requests_running", 0);  // its client has gone
  Connection hog(server.port());
  hog.send(http_request("POST", "/v1/completions", many(16, 500, true), kAnna));
  three_answers();
  EXPECT_GE(figure("preemptions_total"), 1);
  const HttpAnswer all = hog.answer();
  EXPECT_THAT(all.body, EndsWith("data: [DONE]\n\n"));
  const std::map<int, std::string> said = texts(all);
  ASSERT_EQ(said.size(), 16u);
  // Greedy: all the same, as of a server that has nothing else to do.
  const ServerProcess quiet({plan(), "-t", "1", "--ctx", "16384"});
  const std::string alone =
      quiet.post("/v1/completions", many(1, 500, false)).json()["choices"][0]["text"];
  for (const auto& [index, text] : said) EXPECT_EQ(text, alone) << index;
}

// Without keys requests of one address share the batch.
TEST_F(ServeFairness, WithoutKeysARequestHoldsUpNoOther) {
  const ServerProcess server({plan(), "-t", "1", "--ctx", "16384", "--max-batch", "4"});
  {
    Connection hog(server.port());
    hog.send(http_request("POST", "/v1/completions", many(16, 3000, false)));
    server.await_metric("requests_running", 4);
    EXPECT_EQ(server.post("/v1/completions", many(1, 2, false)).status, 200);
    server.await_metric("requests_ended_total", 1);
    EXPECT_EQ(server.metric("requests_ended_total"), 1) << "not one of the sixteen";
  }
  const HttpAnswer all = server.post("/v1/completions", many(16, 50, false));
  EXPECT_EQ(all.json()["choices"].size(), 16u) << all.body;
}

TEST_F(ServeFairness, AKeyMayBeHeldToSomePlaces) {
  const ServerProcess server(args({"--key-slots", "2"}));
  EXPECT_EQ(server.post("/v1/completions", many(8, 50, false), kBert).status, 200);
  const json stats = server.get("/stats", kAnna).json();
  EXPECT_LE(stats["step_requests_total"], 2 * stats["steps_total"].get<double>());
}

TEST_F(ServeFairness, MetricsTellOfKeysRoutesAndTheBuild) {
  const ServerProcess server(args());
  EXPECT_EQ(server.post("/v1/completions", many(1, 5, false), kBert).status, 200);
  EXPECT_EQ(server.post("/v1/completions", many(2, 5, true), kBert).status, 200);
  EXPECT_EQ(server.post("/v1/completions", "{", kBert).status, 400);
  EXPECT_EQ(server.get("/no/such/" + std::string(100, 'x'), kBert).status, 404);
  EXPECT_EQ(server.post("/v1/completions", "{}", "").status, 401);
  EXPECT_EQ(server.get("/metrics", kBert).status, 403) << "other keys' figures";
  const std::vector<std::string> lines = {
      "ktx_http_responses_total{route=\"/v1/completions\",status=\"200\"} 2\n",
      "ktx_http_responses_total{route=\"/v1/completions\",status=\"400\"} 1\n",
      "ktx_http_responses_total{route=\"/v1/completions\",status=\"401\"} 1\n",
      "ktx_http_responses_total{route=\"other\",status=\"404\"} 1\n",
      "ktx_http_responses_total{route=\"/metrics\",status=\"403\"} 1\n",
      "# TYPE ktx_http_response_seconds histogram\n",
      "ktx_key_completion_tokens_total{key=\"bert\"} 15\n",
      "ktx_key_requests_total{key=\"bert\"} ",
      "ktx_kv_usage_ratio 0\n",
      "ktx_requests_ended_by_total{reason=\"length\"} 3\n",
      "ktx_request_seconds_bucket{le=\"1800\"} 3\n",
      "ktx_request_seconds_count 3\n",
      "ktx_request_time_per_token_seconds_count 3\n",
      "ktx_queue_seconds_count 3\n",
      "ktx_time_to_first_token_seconds_count 3\n",
      "ktx_model_info{model=\"m\",family=\"",
      "ktx_build_info{version=\"" KTX_VERSION "\",commit=\""};
  // An answer is counted behind its last byte, the cache's use at the end of a pass.
  std::string text;
  await([&] {
    text = server.get("/metrics", kAnna).body;
    return std::ranges::all_of(
        lines, [&](const std::string& line) { return text.find(line) != std::string::npos; });
  });
  for (const std::string& line : lines) EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("sk-"))) << "keys have names, and are never told";
  // Every line is a comment or NAME{LABELS} NUMBER, each name is announced once.
  std::map<std::string, int> announced;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# TYPE ")) {
      ++announced[line.substr(7, line.find(' ', 7) - 7)];
    } else if (!line.starts_with("# ")) {
      EXPECT_THAT(line, ::testing::MatchesRegex("[a-z_]+(\\{.*\\})? [0-9.e+-]+")) << line;
    }
  }
  for (const auto& [name, times] : announced) EXPECT_EQ(times, 1) << name;
  // What the document names is there.
  const std::string docs = read_file(source_dir() + "/docs/deploying.md");
  const std::regex names("`(ktx_[a-z_]+)[`{]");
  for (std::sregex_iterator at(docs.begin(), docs.end(), names), end; at != end; ++at) {
    EXPECT_EQ(announced[(*at)[1]], 1) << (*at)[1];
  }
}

}  // namespace
}  // namespace ktx::testing
