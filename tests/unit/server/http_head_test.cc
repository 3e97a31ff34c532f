#include "lib/server/http/http_head.h"

#include <gtest/gtest.h>

namespace ktx::server {
namespace {

constexpr const char* kRest = "Host: a\r\n\r\n";

// 0: it was taken.
int status(const std::string& text, HttpHead* out = nullptr) {
  HeadScan scan;
  const HeadScan::State state = scan.look(text);
  if (state == HeadScan::State::Wrong) return 400;
  EXPECT_EQ(state, HeadScan::State::Whole) << text;
  const auto head = read_head(std::string_view(text).substr(0, scan.size()));
  if (!head) return head.error().status;
  if (out != nullptr) *out = *head;
  return 0;
}
int with(const std::string& fields, HttpHead* out = nullptr) {
  return status("POST /a HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n", out);
}

TEST(HttpHead, WhatClientsSendIsRead) {
  HttpHead head;
  ASSERT_EQ(status("\r\nPOST /a%20b?c=d HTTP/1.1\r\nHOST:me:80\r\nContent-length: \t12 \r\n"
                   "X-Empty:\r\nConnection: Close\r\n\r\n",
                   &head),
            0);
  EXPECT_EQ(head.request.method, "POST");
  EXPECT_EQ(head.request.path, "/a b");
  EXPECT_EQ(head.request.query, "c=d");
  EXPECT_EQ(head.request.header("host"), "me:80");
  EXPECT_EQ(head.request.header("x-empty"), "");
  EXPECT_EQ(head.length, 12u);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_FALSE(head.chunked);
  ASSERT_EQ(with("Transfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n", &head), 0);
  EXPECT_TRUE(head.chunked && head.expects_continue && head.keep_alive);
  ASSERT_EQ(status("GET /a HTTP/1.0\r\n\r\n", &head), 0) << "HTTP/1.0 needs no Host";
  EXPECT_FALSE(head.keep_alive);
  ASSERT_EQ(status("GET /a HTTP/1.0\r\nConnection: keep-alive, x\r\n\r\n", &head), 0);
  EXPECT_TRUE(head.keep_alive);
  ASSERT_EQ(status("GET http://other:81/p?q HTTP/1.1\r\nHost: me\r\n\r\n", &head), 0);
  EXPECT_EQ(head.request.header("host"), "other:81") << "what stands in the target counts";
  EXPECT_EQ(head.request.path, "/p");
  EXPECT_EQ(head.request.query, "q");
  EXPECT_EQ(status("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
  EXPECT_EQ(with("X: caf\xc3\xa9\r\n"), 0);
}

TEST(HttpHead, WhatTwoReadersCouldReadDifferentlyIsRefused) {
  const std::pair<std::string, int> kFields[] = {
      {"Content-Length: 5\r\nContent-Length: 5\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"Content-Length: 5, 5\r\n", 400},
      {"Content-Length: +5\r\n", 400},
      {"Content-Length: -5\r\n", 400},
      {"Content-Length: 0x5\r\n", 400},
      {"Content-Length: 5 5\r\n", 400},
      {"Content-Length: 5.0\r\n", 400},
      {"Content-Length:\r\n", 400},
      {"Content-Length: 99999999999999999999\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", 400},
      {"Transfer-Encoding: gzip\r\n", 400},
      {"Transfer-Encoding: gzip, chunked\r\n", 501},
      {"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501},
      {"Transfer-Encoding: identity\r\n", 400},
      {"Transfer-Encoding: chunked, identity\r\n", 400},
      {"Transfer-Encoding: chunked, chunked\r\n", 400},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: xchunked\r\n", 400},
      {"Transfer-Encoding: chunked;q=1\r\n", 400},
      {"Transfer-Encoding: \"chunked\"\r\n", 400},
      {"Transfer-Encoding: ,chunked\r\n", 400},
      {"Transfer-Encoding:\r\n", 400},
      {"Transfer-Encoding: \x0b"
       "chunked\r\n",
       400},
      {"Transfer-Encoding : chunked\r\n", 400},
      {"Content-Length : 5\r\n", 400},
      {" Content-Length: 5\r\n", 400},
      {"X: a\r\n Content-Length: 5\r\n", 400},
      {"X: a\r\n\tfolded\r\n", 400},
      {"X: a\nContent-Length: 5\r\n", 400},
      {"X: a\rContent-Length: 5\r\n", 400},
      {std::string("X: a\0b\r\n", 8), 400},
      {"X: a\x7f\r\n", 400},
      {"no colon\r\n", 400},
      {": empty\r\n", 400},
      {"X(y): 1\r\n", 400},
      {"Host: a\r\n", 400},
      {"Host: b\r\n", 400},
      {"Expect: coffee\r\n", 417},
      {"Expect: 100-continue, coffee\r\n", 417},
  };
  for (const auto& [fields, expected] : kFields) EXPECT_EQ(with(fields), expected) << fields;
  const std::pair<std::string, int> kHeads[] = {
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
      {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.11\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/11\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET file:///etc HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http://a b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {std::string(33, 'G') + " / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"\x16\x03\x01 TLS", 400},
      {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
  };
  for (const auto& [text, expected] : kHeads) EXPECT_EQ(status(text), expected) << text;
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 100; ++i) many += "X: 1\r\n";
  EXPECT_EQ(status(many + kRest), 431);
}

TEST(HttpHead, ItsEndIsFoundHoweverItArrives) {
  const std::string text = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
  HeadScan scan;
  for (size_t size = 1; size <= text.size() - 5; ++size) {
    ASSERT_EQ(scan.look(std::string_view(text).substr(0, size)), HeadScan::State::More) << size;
    EXPECT_EQ(scan.begun(), size > 2) << size;
  }
  EXPECT_EQ(scan.look(text), HeadScan::State::Whole);
  EXPECT_EQ(scan.size(), text.size() - 4);
}

}  // namespace
}  // namespace ktx::server
