#include "lib/server/request/request_headers.h"

#include <gtest/gtest.h>

namespace ktx::server {
namespace {

TEST(RequestHeaders, LeaveTheBeginOfASystemPrompt) {
  const std::pair<const char*, const char*> kCases[] = {
      {"x-anthropic-billing-header: cc_version=2.1; cch=00000;", ""},
      {"x-vendor-billing-header: 1;\nYou are brief.", "You are brief."},
      {"X-Request-Id: 7\r\nx-trace-id: 8\r\n\r\nYou are brief.", "You are brief."},
      // What is no header of a request stays.
      {"You are brief.\nx-request-id: 7", "You are brief.\nx-request-id: 7"},
      {"x-axis: time", "x-axis: time"},
      {"x-a-b is a name", "x-a-b is a name"},
      {"x-my header: 1", "x-my header: 1"},
      {"\nx-request-id: 7", "\nx-request-id: 7"},
      {"", ""},
  };
  for (const auto& [given, left] : kCases) {
    Notes notes;
    EXPECT_EQ(without_request_headers(given, notes), left) << given;
    EXPECT_EQ(notes.empty(), std::string(given) == left) << given;
  }
}

}  // namespace
}  // namespace ktx::server
