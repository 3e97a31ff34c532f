// Hundreds of hostile clients beside a well-behaved one: it gets its answer, and memory stays
// bounded. Loopback only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/paths.h"
#include "tests/support/process_state.h"

namespace ktx::testing {
namespace {

using nlohmann::json;

constexpr const char* kKey = "Authorization: Bearer k\r\n";
constexpr int64_t kMebibyte = 1 << 20;
// AddressSanitizer keeps 256 MiB of what was freed, and room around what was not.
const int64_t kSanitizerBytes = sanitized() ? int64_t{512} << 20 : 0;

class ServeHostile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = new TempDir;
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  }
  static void TearDownTestSuite() { delete models_; }
  static std::string plan() { return models_->path("m.ktxplan"); }

  // A request in earnest, and one with a large body.
  static void expect_answers(const ServerProcess& server) {
    const json small = {{"prompt", "Once"}, {"max_tokens", 2}};
    EXPECT_EQ(server.post("/v1/completions", small.dump(), kKey).status, 200);
    EXPECT_EQ(server.get("/health").status, 200);
    const json large = {{"content", std::string(300000, 'a')}};
    EXPECT_EQ(server.post("/tokenize", large.dump(), kKey).status, 200);
  }
  static std::string announce(const std::string& more, int64_t bytes) {
    return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + more +
           "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
  }

  static TempDir* models_;
};
TempDir* ServeHostile::models_ = nullptr;

TEST_F(ServeHostile, WithoutAKeyNoBodyIsWaitedFor) {
  const ServerProcess server({plan(), "--api-key", "k", "--max-batch", "2"});
  const int64_t before = rss_bytes_of(server.pid());
  std::vector<Connection> clients;
  for (int i = 0; i < 300; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(announce("", 32 * kMebibyte)));
  }
  expect_answers(server);
  for (Connection& client : clients) {
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.headers.at("connection"), "close");
  }
  EXPECT_LT(rss_bytes_of(server.pid()) - before, 64 * kMebibyte + kSanitizerBytes);
}

// Without keys, or if the hostile client has one.
TEST_F(ServeHostile, SilentAndSlowBodiesCloseNothing) {
  const ServerProcess server({plan(), "--api-key", "k", "--max-batch", "2"});
  const int64_t before = rss_bytes_of(server.pid());
  std::vector<Connection> clients;
  for (int i = 0; i < 400; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(announce(kKey, 32 * kMebibyte)));
    if (i % 2 == 0) clients.back().send(std::string(20000, ' '));
  }
  for (int i = 0; i < 8; ++i) {
    expect_answers(server);
    for (size_t c = 0; c < clients.size(); c += 3) clients[c].send(" ");
  }
  // The answers above did not depend on closing these connections: all are still open.
  EXPECT_GE(server.get("/stats", kKey).json().value("connections", 0.0), clients.size());
  EXPECT_LT(rss_bytes_of(server.pid()) - before, 128 * kMebibyte + kSanitizerBytes);
}

TEST_F(ServeHostile, LargeUnfinishedBodiesGiveWay) {
  const ServerProcess server({plan(), "--max-batch", "2"});
  const int64_t before = rss_bytes_of(server.pid());
  // Together more than a server holds: the last ones displace the first.
  std::vector<Connection> clients;
  const std::string part(30 * kMebibyte, ' ');
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(announce("", 32 * kMebibyte)));
    clients.back().send(part);
    expect_answers(server);
  }
  // Bodies of 512 MiB are about 1,000 MiB with what the C library keeps; 1,920 MiB were sent.
  EXPECT_LT(rss_bytes_of(server.pid()) - before, 1280 * kMebibyte + kSanitizerBytes);
  clients.clear();
  expect_answers(server);
}

TEST_F(ServeHostile, MoreConnectionsThanThereArePlacesDoNotShutOthersOut) {
  const ServerProcess server({plan(), "--max-connections", "100", "--max-batch", "2"});
  std::vector<Connection> clients;
  for (int i = 0; i < 500; ++i) {
    clients.emplace_back(server.port());
    if (i % 4 == 1) clients.back().send("POST /v1/chat/compl");
    if (i % 4 == 2) clients.back().send(announce("", 100000));
    if (i % 4 == 3) clients.back().send(http_request("GET", "/health"));
    if (i % 50 == 0) expect_answers(server);
  }
  expect_answers(server);
}

}  // namespace
}  // namespace ktx::testing
