// Streams with X-Conversation-Id outlive their connection and are read again by their owner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/server/answer/kept_streams.h"
#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAlpha = "Authorization: Bearer alpha\r\n";
constexpr const char* kBeta = "Authorization: Bearer beta\r\n";
constexpr const char* kNamed = "X-Conversation-Id: talk::org/model:q4\r\n";
constexpr const char* kPath = "/v1/stream?conv_id=talk%3A%3Aorg%2Fmodel%3Aq4";

class ServeStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  }
  std::string plan() const { return dir_.path("m.ktxplan"); }
  static std::string ask(int tokens) {
    return json{{"prompt", "Once upon a time"},
                {"max_tokens", tokens},
                {"temperature", 0},
                {"ignore_eos", true},
                {"stream", true}}
        .dump();
  }
  // Sends a request, reads the beginning of its stream and leaves.
  static void begin_and_leave(const ServerProcess& server, int tokens, const std::string& headers) {
    Connection client(server.port());
    client.send(http_request("POST", "/v1/completions", ask(tokens), headers));
    EXPECT_THAT(client.receive(), HasSubstr("200 OK"));
  }
  static HttpAnswer erase(const ServerProcess& server, const std::string& key = "") {
    return server.send(http_request("DELETE", kPath, "", key));
  }
  TempDir dir_;
};

TEST_F(ServeStreams, GoOnWithoutTheirClientAndAreReadFromAnyByte) {
  const ServerProcess server({plan(), "-t", "2", "--ctx", "16384"});
  begin_and_leave(server, 3000, kNamed);
  const HttpAnswer all = server.get(std::string(kPath) + "&from=0");
  EXPECT_EQ(all.status, 200);
  EXPECT_THAT(all.headers.at("content-type"), HasSubstr("text/event-stream"));
  EXPECT_THAT(all.body, EndsWith("data: [DONE]\n\n"));
  EXPECT_GT(all.events().size(), 1000u) << "all of the answer";
  EXPECT_EQ(server.get(kPath).body, all.body) << "again, after its end";
  EXPECT_EQ(server.get(std::string(kPath) + "&from=100").body, all.body.substr(100));
  EXPECT_EQ(server.get(std::string(kPath) + "&from=100000000").body, "");
  EXPECT_EQ(server.metric("requests_cancelled_total"), 0);

  const json found =
      server.post("/v1/streams/lookup", R"({"conversation_ids": ["talk", "none"]})").json();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["conversation_id"], "talk::org/model:q4");
  EXPECT_EQ(found[0]["is_done"], true);
  EXPECT_EQ(found[0]["total_bytes"], all.body.size());

  EXPECT_EQ(server.get("/v1/stream").status, 400);
  EXPECT_EQ(server.get(std::string(kPath) + "&from=x").status, 400);
  EXPECT_EQ(server.get(std::string(kPath) + "&from=-1").status, 400);
  EXPECT_EQ(server.get("/v1/stream?conv_id=none").status, 404);
  EXPECT_EQ(erase(server).status, 204);
  EXPECT_EQ(server.get(kPath).status, 404);
  EXPECT_EQ(erase(server).status, 204);
}

TEST_F(ServeStreams, AreEndedByTheirNameAlone) {
  const ServerProcess server({plan(), "-t", "2", "--ctx", "16384"});
  begin_and_leave(server, 15000, kNamed);
  EXPECT_EQ(erase(server).status, 204);
  server.await_metric("requests_cancelled_total", 1);
  // A new stream of the name ends the older one.
  begin_and_leave(server, 15000, kNamed);
  begin_and_leave(server, 4, kNamed);
  server.await_metric("requests_cancelled_total", 2);
  EXPECT_LT(server.get(kPath).events().size(), 10u);
  // What is no stream, or has no name, ends with its client as ever.
  begin_and_leave(server, 15000, "");
  server.await_metric("requests_cancelled_total", 3);
  const HttpAnswer whole =
      server.post("/v1/completions", R"({"prompt": "Hi", "max_tokens": 1})", kNamed);
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": 1.5, "stream": true})", kNamed).status,
            400);
  EXPECT_EQ(server.get(kPath).status, 404) << "a request that failed leaves nothing";
}

TEST_F(ServeStreams, BelongToTheirKey) {
  const ServerProcess server({plan(), "-t", "2", "--api-key", "alpha", "--api-key", "beta"});
  begin_and_leave(server, 50, std::string(kNamed) + kAlpha);
  EXPECT_EQ(server.get(kPath, kBeta).status, 404);
  EXPECT_EQ(server.get(kPath).status, 401);
  EXPECT_EQ(server.post("/v1/streams/lookup", R"({"conversation_ids": ["talk"]})", kBeta).body,
            "[]");
  EXPECT_EQ(erase(server, kBeta).status, 204);
  begin_and_leave(server, 3, std::string(kNamed) + kBeta);
  EXPECT_GT(server.get(kPath, kAlpha).events().size(), 20u) << "beta ended nothing of alpha's";
}

// Takes what is written to it.
class Taken final : public server::HttpReply {
 public:
  void send(int status, std::string_view, std::string, const server::HttpHeaders&) override {
    status_ = status;
  }
  void begin(int status, std::string_view, const server::HttpHeaders&) override {
    status_ = status;
  }
  void write(std::string piece) override { bytes_ += piece.size(); }
  void end() override { ended_ = true; }
  void on_gone(std::function<void()> call) override { gone_ = std::move(call); }
  bool begun() const override { return status_ != 0; }
  int status_ = 0;
  size_t bytes_ = 0;
  bool ended_ = false;
  std::function<void()> gone_;
};

TEST(KeptStreams, TakeBoundedMemory) {
  server::KeptStreams streams;
  const auto client = std::make_shared<Taken>();
  const server::HttpReplyPtr kept = streams.keep("me", "long", client, [](int64_t) {});
  const auto read = [&](int64_t from) {
    const auto reader = std::make_shared<Taken>();
    const auto read = streams.read("me", "long", from, reader);
    return read ? reader->status_ : read.error().status;
  };
  EXPECT_EQ(read(0), 503) << "it has not begun";
  kept->begin(200, "text/event-stream", {});
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 12; ++i) kept->write(piece);
  EXPECT_EQ(client->bytes_, 12u << 20) << "the client has all of it";
  EXPECT_EQ(read(0), 400);
  EXPECT_EQ(read(9 << 20), 200);

  // Streams that run are not given up for others; those that have ended are.
  std::vector<server::HttpReplyPtr> running;
  for (int i = 0; i < 40; ++i) {
    running.push_back(streams.keep("me", std::to_string(i), client, [](int64_t) {}));
    running.back()->begin(200, "text/event-stream", {});
  }
  EXPECT_EQ(running.back(), client) << "not kept: there are 32";
  EXPECT_NE(streams.keep("other", "x", client, [](int64_t) {}), client) << "each key has its own";
  running.front()->end();
  EXPECT_NE(streams.keep("me", "one more", client, [](int64_t) {}), client);
  EXPECT_EQ(streams.find("me", {"0"}).size(), 0u);
}

TEST(KeptStreams, TokensOfAClientThatHasLeftAreCounted) {
  server::KeptStreams streams;
  const auto client = std::make_shared<Taken>();
  int64_t tokens = 0;
  const server::HttpReplyPtr kept =
      streams.keep("me", "x", client, [&](int64_t more) { tokens += more; });
  kept->begin(200, "text/event-stream", {});
  client->gone_();
  kept->add_tokens(5, 2, 7);
  EXPECT_EQ(tokens, 12);
}

}  // namespace
}  // namespace ktx::testing
