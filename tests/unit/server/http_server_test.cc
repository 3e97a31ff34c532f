// The HTTP server alone, with limits so small that a test meets them: clients that are slow,
// do not read, send too much, or come in numbers lose their connection, and nobody else's.
#include "lib/server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/http_client.h"

namespace ktx::server {
namespace {

using testing::Connection;
using testing::http_request;

class HttpServerLimits : public ::testing::Test {
 protected:
  void start(HttpServer::Handler handler = {}) {
    options_.port = 0;
    server_.emplace(options_,
                    [this, handler](const HttpRequest& request, const HttpReplyPtr& reply) {
                      if (request.path == "/well" || !handler)
                        return reply->send(200, "text/plain", "well\n");
                      handler(request, reply);
                    });
    ASSERT_TRUE(server_->start().ok());
  }
  int port() const { return server_->port(); }
  void expect_well() const {
    Connection client(port());
    client.send(http_request("GET", "/well"));
    EXPECT_EQ(client.answer().body, "well\n");
  }
  // Waits, for as long as a busy machine may need.
  template <class Test>
  static bool comes(const Test& test) {
    for (int i = 0; i < 6000 && !test(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return test();
  }

  HttpOptions options_;
  std::optional<HttpServer> server_;
};

TEST_F(HttpServerLimits, HalfAHeaderOrBodyEndsInTime) {
  options_.idle_seconds = 1;
  options_.body_seconds = 1;
  start();
  Connection silent(port()), header(port()), body(port());
  header.send("GET /well HT");
  body.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf");
  expect_well();
  EXPECT_EQ(silent.answer().status, 0) << "who said nothing is told nothing";
  EXPECT_EQ(header.answer().status, 408);
  EXPECT_EQ(body.answer().status, 408);
  for (Connection* client : {&silent, &header, &body}) {
    EXPECT_EQ(client->receive(), "");
    client->close();
  }
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 0; }));
  expect_well();
}

TEST_F(HttpServerLimits, AStreamThatNobodyReadsIsGivenUp) {
  options_.unsent_bytes = 1 << 20;
  std::atomic<bool> gone = false;
  std::thread writer;
  start([&](const HttpRequest&, const HttpReplyPtr& reply) {
    reply->on_gone([&] { gone = true; });
    reply->begin(200, "text/plain");
    writer = std::thread([&, reply] {
      while (!gone) reply->write(std::string(64 << 10, 'x'));
      reply->end();
    });
  });
  Connection client(port());
  client.send(http_request("GET", "/stream"));
  EXPECT_TRUE(comes([&] { return gone.load(); }));
  expect_well();
  gone = true;  // if it did not come, the writer ends all the same
  writer.join();
}

TEST_F(HttpServerLimits, AnAnswerThatNobodyReadsEndsInTime) {
  options_.write_seconds = 1;
  start([&](const HttpRequest&, const HttpReplyPtr& reply) {
    reply->send(200, "text/plain", std::string(64 << 20, 'x'));
  });
  Connection client(port());
  client.send(http_request("GET", "/large"));
  EXPECT_TRUE(comes([&] { return server_->counts().requests == 1; }));
  expect_well();
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 0; }));
}

TEST_F(HttpServerLimits, AClientThatLeavesIsNoticedWhileItsAnswerIsMade) {
  std::atomic<bool> gone = false;
  HttpReplyPtr held;
  std::atomic<bool> asked = false;
  start([&](const HttpRequest&, const HttpReplyPtr& reply) {
    reply->on_gone([&] { gone = true; });
    held = reply;
    asked = true;
  });
  Connection client(port());
  client.send(http_request("GET", "/slow"));
  EXPECT_TRUE(comes([&] { return asked.load(); }));
  client.close();
  EXPECT_TRUE(comes([&] { return gone.load(); }));
  held->send(200, "text/plain", "too late");
  expect_well();
}

TEST_F(HttpServerLimits, BodiesTogetherHaveALimit) {
  options_.bodies_bytes = 1 << 20;
  start();
  const std::string announced =
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 700000\r\n\r\n";
  Connection first(port());
  first.send(announced + "begin");
  // The second is refused from when the first one's header was seen.
  EXPECT_TRUE(comes([&] {
    Connection second(port());
    second.send(announced);
    return second.answer().status == 503;
  }));
  expect_well();
  first.send(std::string(700000 - 5, ' '));
  EXPECT_EQ(first.answer().status, 200);
}

TEST_F(HttpServerLimits, ConnectionsBeyondTheLimitAreClosed) {
  options_.connections = 3;
  start();
  std::vector<Connection> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back(port());
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 3; }));
  Connection fourth(port());
  EXPECT_EQ(fourth.answer().status, 0);
  clients.pop_back();
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 2; }));
  expect_well();
}

TEST_F(HttpServerLimits, ABodyOf50MegabytesIsRefusedWhileItIsSent) {
  start();
  Connection client(port());
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52428800\r\n\r\n");
  const std::string megabyte(1 << 20, ' ');
  for (int i = 0; i < 50 && client.send(megabyte); ++i) {
  }
  const auto answer = client.answer();
  EXPECT_EQ(answer.status, 413);
  EXPECT_NE(answer.body.find("--max-body changes that"), std::string::npos) << answer.body;
  EXPECT_EQ(client.receive(), "") << "and the connection ends";
  expect_well();
}

}  // namespace
}  // namespace ktx::server
