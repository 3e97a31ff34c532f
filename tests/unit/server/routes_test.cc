#include <gtest/gtest.h>

#include "lib/server/endpoints.h"

namespace ktx::server {
namespace {

RouteMatch find(const char* method, const char* path) {
  HttpRequest request;
  request.method = method;
  request.path = path;
  return find_route(request);
}

TEST(Routes, AKnownPathTellsItsMethods) {
  EXPECT_NE(find("POST", "/v1/messages").route, nullptr);
  EXPECT_NE(find("HEAD", "/v1/models").route, nullptr);
  EXPECT_EQ(find("GET", "/v1/messages").route, nullptr);
  EXPECT_EQ(find("GET", "/v1/messages").allow, "POST");
  EXPECT_EQ(find("PUT", "/v1/models").allow, "GET, HEAD");
  EXPECT_EQ(find("GET", "/v1/message").allow, "");
}

// What clients with a wrong base URL ask for.
TEST(Routes, AnUnknownPathIsAnsweredWithTheNearest) {
  const auto meant = [](const char* path, const char* route) {
    EXPECT_EQ(near_route(path), "; did you mean '" + std::string(route) + "'?") << path;
  };
  meant("/messages", "/v1/messages");
  meant("/messages/count_tokens", "/v1/messages/count_tokens");
  meant("/chat", "/api/chat");
  meant("/v1/v1/messages", "/v1/messages");
  meant("/v1/api/chat", "/api/chat");
  meant("/openai/v1/chat/completions", "/v1/chat/completions");
  meant("//v1/models", "/v1/models");
  meant("/v1/models//", "/v1/models");
  meant("/v1/chat/completion", "/v1/chat/completions");
  meant("/complation", "/completion");
  for (const char* far : {"/v1/audio/speech", "/api/blobs", "/favicon.ico", "/v2", "//",
                          "/../../etc/passwd", "x", ""}) {
    EXPECT_EQ(near_route(far), "") << far;
  }
  EXPECT_EQ(near_route("/" + std::string(100000, 'a')), "");
}

}  // namespace
}  // namespace ktx::server
