// The HTTP server alone, with limits small enough to reach in a test: clients that are slow, do
// not read, send too much, or come in numbers lose their own connections and no others.
#include "lib/server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <future>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

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
    testing::await(test);
    return true;
  }

  HttpOptions options_;
  std::optional<HttpServer> server_;
};

class NoReply final : public HttpReply {
 public:
  void send(int, std::string_view, std::string, const HttpHeaders&) override {}
  void begin(int, std::string_view, const HttpHeaders&) override {}
  void write(std::string) override {}
  void end() override {}
  void on_gone(std::function<void()>) override {}
  bool begun() const override { return false; }
};

TEST(HttpServer, StopWaitsForCallsOfOneThatNeverStarted) {
  std::promise<void> goes_on;
  std::atomic<bool> done = false;
  std::thread client;
  {
    HttpServer server({}, [](const HttpRequest&, const HttpReplyPtr&) {});
    server.run_apart(std::make_shared<NoReply>(), [&, future = goes_on.get_future().share()] {
      future.wait();
      done = true;
    });
    client = std::thread([&] { goes_on.set_value(); });
    server.stop();
    EXPECT_TRUE(done);
  }
  client.join();
}

TEST_F(HttpServerLimits, HalfAHeaderOrBodyEndsInTime) {
  options_.header_seconds = 1;
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

TEST_F(HttpServerLimits, ASilentStreamOfEventsGetsComments) {
  options_.comment_seconds = 1;
  std::promise<HttpReplyPtr> of_lines, of_events;
  start([&](const HttpRequest& request, const HttpReplyPtr& reply) {
    const bool is_events = request.path == "/events";
    reply->begin(200, is_events ? "text/event-stream" : "application/x-ndjson");
    (is_events ? of_events : of_lines).set_value(reply);
  });
  Connection lines(port()), events(port());
  lines.send(http_request("GET", "/lines"));
  const HttpReplyPtr lines_reply = of_lines.get_future().get();
  events.send(http_request("GET", "/events"));
  const HttpReplyPtr events_reply = of_events.get_future().get();
  std::string seen;
  const std::string comment = ": waiting\n\n";
  while (seen.find(comment) == seen.rfind(comment)) {  // until there are two
    const std::string more = events.receive();
    ASSERT_NE(more, "") << seen;
    seen += more;
  }
  for (const HttpReplyPtr& reply : {lines_reply, events_reply}) {
    reply->write("data: 1\n\n");
    reply->end();
  }
  while (seen.find("\r\n0\r\n") == std::string::npos) {
    const std::string more = events.receive();
    ASSERT_NE(more, "") << seen;
    seen += more;
  }
  EXPECT_LT(seen.rfind(comment), seen.find("data: 1\n\n"));
  EXPECT_EQ(lines.answer().body, "data: 1\n\n") << "lines of JSON have no comments";
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

// It says that it will send no more, and still reads.
TEST_F(HttpServerLimits, AClientThatClosesItsSideGetsItsAnswer) {
  options_.half_closed_seconds = 900;
  start([&](const HttpRequest&, const HttpReplyPtr& reply) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    reply->send(200, "text/plain", "after a while");
  });
  Connection client(port());
  client.send(http_request("GET", "/slow"));
  ::shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.answer().body, "after a while");
}

// A client that has left for good looks the same at first: an answer is not made for ever.
TEST_F(HttpServerLimits, AClientThatClosesItsSideIsGoneAfterAWhile) {
  std::atomic<bool> gone = false;
  start(
      [&](const HttpRequest&, const HttpReplyPtr& reply) { reply->on_gone([&] { gone = true; }); });
  Connection left(port());
  left.send(http_request("GET", "/never"));
  ::shutdown(left.fd(), SHUT_WR);
  EXPECT_TRUE(comes([&] { return gone.load(); }));
  EXPECT_EQ(left.receive(), "");
  expect_well();
}

TEST_F(HttpServerLimits, PlainHttpAtAnEncryptedPortIsToldSo) {
  const testing::TempDir dir;
  options_.tls_key = dir.path("key.pem");
  options_.tls_certificate = dir.path("cert.pem");
  const testing::Finished made = testing::run_program(
      {"/usr/bin/env", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
       "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout",
       options_.tls_key, "-out", options_.tls_certificate});
  if (made.status != 0) GTEST_SKIP() << "no openssl here: " << made.err;
  start();
  for (const char* method : {"GET", "POST", "HEAD"}) {
    Connection client(port());
    client.send(http_request(method, "/well"));
    const testing::HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, ::testing::HasSubstr("this port takes https://, not http://"));
    EXPECT_EQ(client.receive(), "");
  }
  // What is neither is only closed.
  Connection other(port());
  other.send("SSH-2.0-OpenSSH_9.2\r\n");
  while (!other.receive().empty()) {
  }
}

std::string announce(size_t bytes) {
  return "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(bytes) +
         "\r\n\r\n";
}

TEST_F(HttpServerLimits, WhatIsOnlyAnnouncedTakesNothingFromOthers) {
  options_.bodies_bytes = 1 << 20;
  start();
  std::vector<Connection> silent;
  for (int i = 0; i < 50; ++i) {
    silent.emplace_back(port());
    silent.back().send(announce(700000));
  }
  for (int i = 0; i < 5; ++i) {
    Connection good(port());
    good.send(announce(500000) + std::string(500000, ' '));
    EXPECT_EQ(good.answer().status, 200) << "and its memory comes back: " << i;
  }
}

TEST_F(HttpServerLimits, TheLargestUnfinishedBodyGivesWay) {
  options_.bodies_bytes = 1 << 20;
  start();
  Connection large(port());
  large.send(announce(1000000) + std::string(900000, ' '));
  // As soon as it has arrived.
  EXPECT_TRUE(comes([&] {
    Connection good(port());
    good.send(announce(300000) + std::string(300000, ' '));
    EXPECT_EQ(good.answer().status, 200);
    pollfd readable = {large.fd(), POLLIN, 0};
    return ::poll(&readable, 1, 0) == 1;
  }));
  const auto answer = large.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.count("retry-after"), 1u);
  EXPECT_EQ(large.receive(), "");
}

TEST_F(HttpServerLimits, ABodyThatComesTooSlowlyEnds) {
  options_.stall_seconds = 1;
  options_.body_rate = 1000;
  start();
  Connection slow(port());
  slow.send(announce(100000));
  // A byte now and then is not enough, however long it goes on.
  EXPECT_TRUE(comes([&] { return !slow.send("x"); }));
  expect_well();
}

TEST_F(HttpServerLimits, AHeaderThatComesByteByByteEnds) {
  options_.header_seconds = 1;
  start();
  Connection slow(port());
  slow.send("GET / HTTP/1.1\r\nX: ");
  EXPECT_TRUE(comes([&] { return !slow.send("x"); }));
  expect_well();
}

TEST_F(HttpServerLimits, NoBodyIsReadThatMayNotCome) {
  std::atomic<int> handled = 0;
  options_.admit = [](const HttpRequest& request, const HttpReplyPtr& reply) {
    if (!request.header("x-api-key").empty()) return true;
    reply->send(401, "text/plain", "no key\n");
    return false;
  };
  start([&](const HttpRequest& request, const HttpReplyPtr& reply) {
    ++handled;
    reply->send(200, "text/plain", request.body);
  });
  for (const char* more : {"", "Expect: 100-continue\r\n"}) {
    Connection silent(port());
    silent.send("POST / HTTP/1.1\r\nHost: localhost\r\n" + std::string(more) +
                "Content-Length: 30000000\r\n\r\n");
    const auto answer = silent.answer();
    EXPECT_EQ(answer.status, 401) << "and no 100 before it";
    EXPECT_EQ(answer.headers.at("connection"), "close");
  }
  EXPECT_EQ(handled, 0);
  Connection good(port());
  good.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: k\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");
  EXPECT_EQ(good.answer().status, 100);
  good.send("body");
  EXPECT_EQ(good.answer().body, "body");
  good.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: k\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\nbody");
  EXPECT_EQ(good.answer().status, 200) << "what is there need not be asked for";
}

TEST_F(HttpServerLimits, SilentConnectionsShutNobodyOut) {
  options_.connections = 20;
  start();
  std::vector<Connection> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(port());
    if (i % 3 == 0) silent.back().send("GET /half");
    if (i % 3 == 1) silent.back().send(announce(1000));
    if (i % 30 == 0) expect_well();
  }
  expect_well();
  EXPECT_TRUE(comes([&] { return server_->counts().connections <= 20; }));
  // Those that came last still wait.
  silent.back().send("GET /well HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(silent.back().answer().status, 200);
}

TEST_F(HttpServerLimits, WhereAllAreAnsweredOthersAreToldToComeBack) {
  options_.connections = 3;
  std::mutex mutex;
  std::vector<HttpReplyPtr> held;
  start([&](const HttpRequest&, const HttpReplyPtr& reply) {
    const std::lock_guard lock(mutex);
    held.push_back(reply);
  });
  std::vector<Connection> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(port());
    clients.back().send(http_request("GET", "/slow"));
  }
  EXPECT_TRUE(comes([&] { return server_->counts().requests == 3; }));
  Connection fourth(port());
  const auto refused = fourth.answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  clients.pop_back();
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 2; }));
  expect_well();
  const std::lock_guard lock(mutex);
  for (const HttpReplyPtr& reply : held) reply->send(200, "text/plain", "done");
}

TEST_F(HttpServerLimits, LengthyRequestsHoldUpNoOthers) {
  options_.workers = 1;
  options_.work = [](const HttpRequest& request) {
    return request.body == "lengthy" ? HttpWork::Long : HttpWork::Short;
  };
  std::promise<void> over;
  const std::shared_future<void> wait = over.get_future().share();
  start([&](const HttpRequest& request, const HttpReplyPtr& reply) {
    if (request.body == "lengthy" || request.body.size() > 100'000) wait.wait();
    reply->send(200, "text/plain", "done");
  });
  Connection lengthy(port()), large(port()), small(port());
  lengthy.send(http_request("POST", "/x", "lengthy"));
  large.send(http_request("POST", "/x", std::string(100'001, 'a')));
  EXPECT_TRUE(comes([&] { return server_->counts().requests == 2; }));
  small.send(http_request("POST", "/x", "short"));
  EXPECT_EQ(small.answer().status, 200);
  over.set_value();
  EXPECT_EQ(lengthy.answer().status, 200);
  EXPECT_EQ(large.answer().status, 200);
}

TEST_F(HttpServerLimits, WhatAHandlerThrowsIsAnErrorOfItsRequest) {
  std::mutex mutex;
  std::vector<std::string> logged;
  options_.log = [&](const HttpLogEntry& entry) {
    const std::lock_guard lock(mutex);
    logged.push_back(entry.error);
  };
  options_.quick = [](const HttpRequest& request) { return request.query == "quick"; };
  start([](const HttpRequest& request, const HttpReplyPtr& reply) {
    if (request.path == "/begun") {
      reply->begin(200, "text/plain");
      reply->write("half of it");
    }
    if (request.path == "/memory") throw std::bad_alloc();
    if (request.path == "/number") throw 7;
    throw std::runtime_error("a secret of the server");
  });
  for (const char* where : {"/x", "/memory", "/number", "/x?quick", "/memory?quick"}) {
    Connection client(port());
    for (int i = 0; i < 2; ++i) {
      client.send(http_request("POST", where, "{}"));
      const auto answer = client.answer();
      EXPECT_EQ(answer.status, 500) << where;
      EXPECT_EQ(answer.json()["error"]["type"], "server_error") << answer.body;
      EXPECT_EQ(answer.body.find("secret"), std::string::npos);
    }
  }
  // Half an answer does not look like a whole one.
  Connection client(port());
  client.send(http_request("GET", "/begun"));
  std::string all;
  for (std::string part; !(part = client.receive()).empty();) all += part;
  EXPECT_EQ(all.find("\r\n0\r\n"), std::string::npos) << all;
  expect_well();
  server_.reset();  // its thread logs behind the answer
  EXPECT_THAT(logged, ::testing::Contains("a secret of the server"));
  EXPECT_THAT(logged, ::testing::Contains("not enough memory"));
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
