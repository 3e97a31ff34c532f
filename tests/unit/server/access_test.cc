#include "lib/server/access.h"

#include <gtest/gtest.h>

namespace ktx::server {
namespace {

HttpRequest request(const HttpHeaders& headers) {
  HttpRequest out;
  out.method = "POST";
  out.headers = headers;
  return out;
}

int status(const AccessOptions& options, const HttpHeaders& headers, bool open = false) {
  const auto access = check_access(options, request(headers), open);
  return access ? 200 : access.error().status;
}

TEST(Access, KeysAreAskedForWhereThereAreAny) {
  AccessOptions options;
  EXPECT_EQ(status(options, {}), 200);
  options.keys = {"first", "second"};
  EXPECT_EQ(status(options, {}), 401);
  EXPECT_EQ(status(options, {}, true), 200);
  EXPECT_EQ(status(options, {{"authorization", "Bearer first"}}), 200);
  EXPECT_EQ(status(options, {{"x-api-key", "second"}}), 200);
  for (const char* wrong : {"Bearer firs", "Bearer firstt", "Bearer ", "first", "Basic first"}) {
    EXPECT_EQ(status(options, {{"authorization", wrong}}), 401) << wrong;
  }
}

TEST(Access, TheSchemeMayBeWrittenInAnyCase) {
  AccessOptions options;
  options.keys = {"first"};
  for (const char* good : {"bearer first", "BEARER first", "bEaReR  first "}) {
    EXPECT_EQ(status(options, {{"authorization", good}}), 200) << good;
  }
  EXPECT_EQ(status(options, {{"authorization", "bearerfirst"}}), 401);
  EXPECT_EQ(status(options, {{"authorization", "Bearer First"}}), 401) << "keys have their case";
  EXPECT_EQ(status(options, {{"authorization", "Basic xy"}, {"x-api-key", "first"}}), 200);
}

TEST(Access, AnOwnerStandsForAKeyAndDoesNotTellIt) {
  AccessOptions options;
  EXPECT_EQ(owner_of(key_of(options, request({{"x-api-key", "any"}}))), "")
      << "no keys: everybody's";
  options.keys = {"first", "second"};
  const auto owner = [&](const char* key) {
    return owner_of(key_of(options, request({{"x-api-key", key}})));
  };
  EXPECT_EQ(owner("first").size(), 32u);
  EXPECT_EQ(owner("first"), owner("first"));
  EXPECT_EQ(owner("first"),
            owner_of(key_of(options, request({{"authorization", "bearer first"}}))));
  EXPECT_NE(owner("first"), owner("second"));
  EXPECT_EQ(owner("first").find("first"), std::string::npos);
  EXPECT_EQ(owner("wrong"), "");
  options.keys = {"second", "first"};
  EXPECT_EQ(owner("first"), owner_of(key_of(options, request({{"x-api-key", "first"}}))))
      << "whatever the order of the keys";
}

TEST(Access, SharesAreThoseOfKeysOrOfAddresses) {
  AccessOptions options;
  const auto share = [&](const std::string& client, const std::string& key = "") {
    HttpRequest request;
    request.client = client;
    if (!key.empty()) request.headers = {{"x-api-key", key}};
    return share_of(key_of(options, request), request, 7);
  };
  EXPECT_EQ(share("10.0.0.1").key, share("10.0.0.1").key);
  EXPECT_NE(share("10.0.0.1").key, share("10.0.0.2").key);
  EXPECT_EQ(share("10.0.0.1").request, 7u) << "whose requests share";
  EXPECT_EQ(share("2001:db8:0:1::5").key, share("2001:db8:0:1:ffff::9").key) << "one network";
  EXPECT_NE(share("2001:db8:0:1::5").key, share("2001:db8:0:2::5").key);
  EXPECT_NE(share("::ffff:10.0.0.1").key, share("::ffff:10.0.0.2").key);
  options.keys = {"one", "two"};
  options.keys[1].priority = 3;
  EXPECT_EQ(share("10.0.0.1", "one").key, share("10.0.0.2", "one").key);
  EXPECT_NE(share("10.0.0.1", "one").key, share("10.0.0.1", "two").key);
  EXPECT_EQ(share("10.0.0.1", "two").weight, 3);
  EXPECT_EQ(share("10.0.0.1", "two").request, 0u) << "the order of a key's requests stays";
  EXPECT_EQ(share("", "two").key.find("two"), std::string::npos) << "keys are told nowhere";
}

TEST(Access, ALoopbackServerAnswersToItsOwnNamesOnly) {
  AccessOptions options;
  for (const char* good : {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]", "[::1]:80",
                           "LocalHost:8080", "LOCALHOST"}) {
    EXPECT_EQ(status(options, {{"host", good}}), 200) << good;
  }
  for (const char* bad : {"evil.example", "evil.example:8080", "localhost.evil.example", "[::2]"}) {
    EXPECT_EQ(status(options, {{"host", bad}}), 403) << bad;
  }
  options.hosts = {"My.name"};
  EXPECT_EQ(status(options, {{"host", "my.name:8080"}}), 200);
  EXPECT_EQ(status(options, {{"host", "MY.NAME"}}), 200);
  EXPECT_EQ(status(options, {{"host", "my.name2"}}), 403);
  options.loopback = false;
  EXPECT_EQ(status(options, {{"host", "any.name"}}), 200);
}

TEST(Access, PagesOfOthersAreRefusedAndOursIsNot) {
  AccessOptions options;
  const auto from = [&](const char* origin) {
    return status(options, {{"host", "localhost:8080"}, {"origin", origin}});
  };
  EXPECT_EQ(from("http://localhost:8080"), 200);
  EXPECT_EQ(from("http://localhost:9090"), 403);
  EXPECT_EQ(from("https://evil.example"), 403);
  EXPECT_EQ(from("null"), 403);
  options.origins = {"https://good.example"};
  EXPECT_EQ(from("https://good.example"), 200);
  EXPECT_EQ(from("https://good.example.evil"), 403);
  options.origins = {"*"};
  EXPECT_EQ(from("null"), 200);
}

TEST(Access, CorsHeadersAreForAllowedPages) {
  AccessOptions options;
  HttpRequest asked = request({{"origin", "https://good.example"}});
  EXPECT_TRUE(cors_headers(options, asked).empty());
  options.origins = {"https://good.example"};
  ASSERT_FALSE(cors_headers(options, asked).empty());
  EXPECT_EQ(cors_headers(options, asked)[0].second, "https://good.example");
  asked.method = "OPTIONS";
  EXPECT_EQ(cors_headers(options, asked).size(), 6u);
  options.origins = {"*"};
  asked.headers[0].second = "https://x\r\nSet-Cookie: a";
  EXPECT_TRUE(cors_headers(options, asked).empty());
}

TEST(Access, ComparesWholeKeys) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "abcabc"}) {
    EXPECT_FALSE(equal_in_constant_time("abc", other)) << other;
  }
  EXPECT_FALSE(equal_in_constant_time("", ""));
}

TEST(HttpRequestTest, ReadsQueriesAndEscapes) {
  HttpRequest asked;
  asked.query = "a=1&b=x%20y&empty&c=%zz";
  EXPECT_EQ(asked.query_value("a"), "1");
  EXPECT_EQ(asked.query_value("b"), "x y");
  EXPECT_EQ(asked.query_value("empty"), "");
  EXPECT_EQ(asked.query_value("c"), "%zz");
  EXPECT_EQ(asked.query_value("nothing"), "");
  EXPECT_EQ(decode_url("%41%2"), "A%2");
}

TEST(Access, PagesMaySendWhatTheOfficialClientsSend) {
  AccessOptions options;
  options.origins = {"https://app.example"};
  HttpRequest preflight = request(
      {{"origin", "https://app.example"},
       {"access-control-request-headers", "X-Stainless-New-One, anthropic-later,evil, x\rb"}});
  preflight.method = "OPTIONS";
  std::string allowed, exposed;
  for (const auto& [name, value] : cors_headers(options, preflight)) {
    if (name == "Access-Control-Allow-Headers") allowed = ", " + value + ",";
    if (name == "Access-Control-Expose-Headers") exposed = value;
  }
  for (const char* header :
       {"authorization", "x-api-key", "anthropic-version", "x-stainless-lang",
        "anthropic-dangerous-direct-browser-access", "x-stainless-new-one", "anthropic-later",
        "x-stainless-custom-poll-interval", "range", "session_id", "conversation_id"}) {
    EXPECT_NE(allowed.find(std::string(", ") + header + ","), allowed.npos) << header;
  }
  EXPECT_EQ(allowed.find("evil"), allowed.npos);
  EXPECT_EQ(allowed.find('\r'), allowed.npos);
  EXPECT_NE(exposed.find("Request-Id"), exposed.npos);
}

}  // namespace
}  // namespace ktx::server
