// Bytes that a proxy in front and this server could split into requests differently: each gets
// one error, the connection ends, and nothing behind it is read as a request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lib/server/http/http_server.h"
#include "tests/support/http_client.h"

namespace ktx::server {
namespace {

using testing::Connection;

class HttpFraming : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpOptions options;
    options.port = 0;
    server_.emplace(options, [this](const HttpRequest& request, const HttpReplyPtr& reply) {
      if (request.path == "/smuggled") ++smuggled_;
      reply->send(200, "text/plain", request.path + " " + request.body + "\n");
    });
    ASSERT_TRUE(server_->start().ok());
  }
  // All that comes until the connection ends.
  std::string all_of(const std::string& bytes) {
    Connection client(server_->port());
    client.send(bytes);
    std::string all;
    for (std::string part; !(part = client.receive()).empty();) all += part;
    return all;
  }

  std::optional<HttpServer> server_;
  std::atomic<int> smuggled_ = 0;
};

TEST_F(HttpFraming, WhatIsDoubtfulEndsTheConnection) {
  const std::string next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, int> kCases[] = {
      {post + "Transfer-Encoding: gzip\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: identity\r\n\r\n", 400},
      {post + "Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {post + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n", 400},
      {post + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400},
      {post + "Content-Length : 0\r\n\r\n", 400},
      {post + "X: a\r\n Content-Length: 7\r\n\r\n", 400},
      {post + "X: a\nContent-Length: 7\r\n\r\n", 400},
      {post + "X: a\rContent-Length: 7\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505},
      {post + "Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx", 415},
      {post + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 400},
      {post + "Expect: something\r\nContent-Length: 0\r\n\r\n", 417},
      {chunked + "0x0\r\n\r\n", 400},
      {chunked + "\r\n\r\n", 400},
      {chunked + "-1\r\n\r\n", 400},
      {chunked + "1\nx\r\n0\r\n\r\n", 400},
      {chunked + "2\r\nx\r\n0\r\n\r\n", 400},
      {chunked + "1\r\nxx\r\n0\r\n\r\n", 400},
      {chunked + "1;a\nb\r\nx\r\n0\r\n\r\n", 400},
      {chunked + "FFFFFFFFFFFFFFFFF\r\n", 400},
      {chunked + "0\r\nnot a field\r\n\r\n", 400},
      {chunked + "0\r\n X: folded\r\n\r\n", 400},
  };
  std::vector<std::thread> threads;
  for (const auto& [bytes, status] : kCases) {
    threads.emplace_back([&, bytes = bytes, status = status] {
      const std::string answer = all_of(bytes + next);
      EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 " + std::to_string(status)) << bytes;
      EXPECT_EQ(answer.find("Content-Length: "), answer.rfind("Content-Length: "))
          << "one answer alone: " << bytes << "\n"
          << answer;
      EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << bytes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(smuggled_, 0);
}

TEST_F(HttpFraming, WhatIsRightIsReadAndTheNextRequestToo) {
  const std::string last = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  const std::string post = "POST /p HTTP/1.1\r\nHost: a\r\n";
  const std::string kRequests[] = {
      post + "Content-Length: 5\r\n\r\nhello",
      post + "Transfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
      post + "Content-Encoding: GZip\r\nContent-Length: 25\r\n\r\n" +
          std::string("\x1f\x8b\x08\0\0\0\0\0\x02\x03\xcb\x48\xcd\xc9\xc9\x07\0\x86\xa6\x10\x36\x05"
                      "\0\0\0",
                      25),
      post + "Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\nT: v\r\n\r\n",
      "\r\nPOST http://a/p HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\n\r\nhello",
      "POST /p HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
  };
  for (const std::string& request : kRequests) {
    const std::string answer = all_of(request + last);
    EXPECT_THAT(answer, ::testing::HasSubstr("/p hello\n")) << request;
    EXPECT_THAT(answer, ::testing::EndsWith("/last \n")) << request;
  }
}

}  // namespace
}  // namespace ktx::server
