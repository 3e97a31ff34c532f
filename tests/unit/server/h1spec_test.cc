// h1spec (github.com/uNetworking/h1spec), a published check of HTTP/1.1 servers, against ours. It
// is not part of this repository: KTX_H1SPEC names a folder that has it. Its cases are read from
// its http_test.ts; a server echoes the body of any request there, and waits where a request has
// not ended.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "lib/server/http/http_server.h"
#include "tests/support/http_client.h"

namespace ktx::server {
namespace {

struct Case {
  std::string request, description, body;
  std::vector<std::pair<int, int>> statuses;
  bool waits = false;
};

// The literals of one object of the list: request, description, expectedStatus, ...
std::vector<Case> read_cases(const std::string& text) {
  const auto literal = [](const std::string& quoted) {
    // JavaScript's \xHH is JSON's \u00HH.
    return nlohmann::json::parse(
               std::regex_replace(quoted, std::regex(R"(\\x([0-9a-fA-F]{2}))"), "\\u00$1"))
        .get<std::string>();
  };
  const std::regex begin(R"(request:\s*("(?:[^"\\]|\\.)*"))");
  const std::regex description(R"(description:\s*("(?:[^"\\]|\\.)*"))");
  const std::regex body(R"(expectedBody:\s*("(?:[^"\\]|\\.)*"))");
  const std::regex range(R"(\[\s*(-?\d+)\s*,\s*(-?\d+)\s*\])");
  std::vector<Case> out;
  for (std::sregex_iterator at(text.begin(), text.end(), begin), end; at != end; ++at) {
    const std::string part = text.substr(
        at->position(), text.find("},", at->position()) - static_cast<size_t>(at->position()));
    Case one;
    one.request = literal((*at)[1]);
    std::smatch found;
    if (std::regex_search(part, found, description)) one.description = literal(found[1]);
    if (std::regex_search(part, found, body)) one.body = literal(found[1]);
    one.waits = part.find("expectedTimeout: true") != std::string::npos;
    const std::string statuses = part.substr(part.find("expectedStatus"));
    for (std::sregex_iterator r(statuses.begin(), statuses.end(), range); r != end; ++r) {
      one.statuses.push_back({std::stoi((*r)[1]), std::stoi((*r)[2])});
    }
    out.push_back(std::move(one));
  }
  return out;
}

TEST(H1Spec, AllCasesAreAnsweredAsTheyShould) {
  const char* folder = std::getenv("KTX_H1SPEC");
  std::ifstream in(std::string(folder == nullptr ? "" : folder) + "/http_test.ts");
  if (folder == nullptr || !in) GTEST_SKIP() << "KTX_H1SPEC names no folder with h1spec";
  std::stringstream text;
  text << in.rdbuf();
  const std::vector<Case> cases = read_cases(text.str());
  ASSERT_GE(cases.size(), 33u);
  HttpOptions options;
  options.port = 0;
  HttpServer server(options, [](const HttpRequest& request, const HttpReplyPtr& reply) {
    reply->send(200, "text/plain", request.body);
  });
  ASSERT_TRUE(server.start().ok());
  for (const Case& one : cases) {
    testing::Connection client(server.port());
    client.send(one.request);
    if (one.waits) {
      pollfd wait = {client.fd(), POLLIN, 0};
      EXPECT_EQ(::poll(&wait, 1, 300), 0) << one.description;
      continue;
    }
    const testing::HttpAnswer answer = client.answer();
    const bool fits = std::any_of(one.statuses.begin(), one.statuses.end(), [&](const auto& r) {
      return answer.status >= r.first && answer.status <= r.second;
    });
    EXPECT_TRUE(fits) << one.description << ": " << answer.status;
    if (answer.status == 200 && !one.body.empty()) {
      EXPECT_EQ(answer.body, one.body) << one.description;
    }
  }
  fmt::print("{} cases of h1spec\n", cases.size());
}

}  // namespace
}  // namespace ktx::server
