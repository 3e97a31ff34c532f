#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/server/chat_prompt_input.h"

namespace ktx::server {
namespace {

using ::testing::HasSubstr;

Json with_calls(size_t count) {
  const Json call = {{"function", {{"name", "f"}, {"arguments", "{}"}}}};
  Json calls = Json::array();
  for (size_t i = 0; i < count; ++i) calls.push_back(call);
  return {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", std::move(calls)}};
}

TEST(ChatMessages, HaveAsManyAsATemplateRendersInTime) {
  Json messages, list = Json::array();
  for (size_t i = 0; i < kMaxMessages; ++i) {
    list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "Hi"}});
  }
  list.back()["role"] = "user";
  EXPECT_FALSE(read_messages(list, messages));
  EXPECT_EQ(messages.size(), kMaxMessages);
  list.push_back(list[0]);
  const std::optional<ApiError> error = read_messages(list, messages);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("'messages' has 4097 items, at most 4096 are possible"));
}

TEST(ChatMessages, HaveAsManyToolCallsAsATemplateRendersInTime) {
  const Json question = {{"role", "user"}, {"content", "Hi"}};
  Json messages;
  Json list = {question, with_calls(kMaxToolCalls / 2), question, with_calls(kMaxToolCalls / 2)};
  EXPECT_FALSE(read_messages(list, messages));
  EXPECT_EQ(messages[3]["tool_calls"].size(), kMaxToolCalls / 2);
  list.push_back(with_calls(1));
  const std::optional<ApiError> error = read_messages(list, messages);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("'messages' have more than 16384 tool calls; send fewer"));
}

}  // namespace
}  // namespace ktx::server
