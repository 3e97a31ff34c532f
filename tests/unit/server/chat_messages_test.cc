#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/server/request/chat_prompt_input.h"

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
  Json list = Json::array();
  Notes notes;
  for (size_t i = 0; i < kMaxMessages; ++i) {
    list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "Hi"}});
  }
  list.back()["role"] = "user";
  const auto messages = read_messages(list, notes);
  ASSERT_TRUE(messages);
  EXPECT_EQ(messages->size(), kMaxMessages);
  list.push_back(list[0]);
  const auto more = read_messages(list, notes);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message,
              HasSubstr("'messages' has 4097 items, at most 4096 are possible"));
}

TEST(ChatMessages, HaveAsManyToolCallsAsATemplateRendersInTime) {
  const Json question = {{"role", "user"}, {"content", "Hi"}};
  Notes notes;
  Json list = {question, with_calls(kMaxToolCalls / 2), question, with_calls(kMaxToolCalls / 2)};
  const auto messages = read_messages(list, notes);
  ASSERT_TRUE(messages);
  EXPECT_EQ((*messages)[3]["tool_calls"].size(), kMaxToolCalls / 2);
  list.push_back(with_calls(1));
  const auto more = read_messages(list, notes);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message,
              HasSubstr("'messages' have more than 16384 tool calls; send fewer"));
}

// OpenAI's first form of calls, custom tools, and a refusal without content.
TEST(ChatMessages, HaveEveryFormOfWhatTheAssistantDid) {
  Notes notes;
  const Json list = {
      {{"role", "user"}, {"content", "Hi"}},
      {{"role", "assistant"}, {"content", nullptr}, {"refusal", "No."}},
      {{"role", "user"}, {"content", "Hi"}},
      {{"role", "assistant"}, {"function_call", {{"name", "old"}, {"arguments", "{}"}}}},
      {{"role", "function"}, {"name", "old"}, {"content", "x"}},
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls",
        {{{"id", "c"}, {"type", "custom"}, {"custom", {{"name", "sql"}, {"input", "SELECT 1"}}}}}}},
      {{"role", "tool"}, {"tool_call_id", "c"}, {"content", {{{"type", "image_url"}}}}},
  };
  const auto messages = read_messages(list, notes);
  ASSERT_TRUE(messages) << messages.error().message;
  EXPECT_EQ((*messages)[1]["content"], "No.");
  EXPECT_EQ((*messages)[3]["tool_calls"][0]["function"]["name"], "old");
  EXPECT_EQ((*messages)[4]["role"], "tool");
  EXPECT_EQ((*messages)[5]["tool_calls"][0]["function"]["arguments"], "{\"input\":\"SELECT 1\"}");
  EXPECT_EQ((*messages)[6]["content"], "[image left out: this model reads text only]");
}

// As histories of frameworks have them.
TEST(ChatMessages, AssistantsAndToolsMayBeSilent) {
  Notes notes;
  const Json list = {{{"role", "user"}, {"content", {"a", "b"}}},
                     {{"role", "assistant"}},
                     {{"role", "user"}, {"content", "Hi"}},
                     with_calls(2),
                     {{"role", "tool"}, {"tool_call_id", "c"}},
                     {{"role", "tool"}, {"content", {{"t", 21}, {"type", "weather"}}}}};
  const auto messages = read_messages(list, notes);
  ASSERT_TRUE(messages) << messages.error().message;
  EXPECT_EQ((*messages)[0]["content"], "ab");
  EXPECT_EQ((*messages)[1]["content"], "");
  EXPECT_EQ((*messages)[4]["content"], "");
  EXPECT_EQ((*messages)[5]["content"], R"({"t":21,"type":"weather"})");
  const auto silent = read_messages(Json::array({Json{{"role", "user"}}}), notes);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().message, "'messages[0]' has no content");
}

TEST(ChatMessages, MistakesAreNamedWithTheirPlace) {
  Notes notes;
  const Json good = {{"id", "c"}, {"function", {{"name", "f"}}}};
  const Json list = {{{"role", "user"}, {"content", "Hi"}},
                     {{"role", "assistant"}, {"tool_calls", {good, {{"id", "d"}}}}}};
  const auto messages = read_messages(list, notes);
  ASSERT_FALSE(messages);
  EXPECT_EQ(messages.error().message,
            "'messages[1].tool_calls[1]' is a call without function.name");
  EXPECT_EQ(messages.error().param, "messages[1].tool_calls[1]");
}

}  // namespace
}  // namespace ktx::server
