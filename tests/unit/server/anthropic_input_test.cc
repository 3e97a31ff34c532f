#include "lib/server/anthropic/anthropic_input.h"

#include <gmock/gmock.h>

#include "lib/server/anthropic/anthropic_error.h"
#include "lib/server/request/prompt_roles.h"
#include "lib/server/request/reasoning_fields.h"

namespace ktx::server {
namespace {

using ::testing::HasSubstr;

struct Read {
  ChatInput input;
  RequestTools tools;
  std::string error;
};
Read read(const Json& messages, const Json& system = nullptr) {
  Read out;
  const auto read =
      read_anthropic_messages(system.is_null() ? nullptr : &system, messages, out.input, out.tools);
  if (!read) out.error = read.error().message;
  return out;
}
Json block(const char* type, const char* key, const Json& value) {
  return {{"type", type}, {key, value}};
}

TEST(AnthropicInput, ResultsOfToolsAreMessages) {
  const Read said = read(
      {{{"role", "user"}, {"content", "go"}},
       {{"role", "assistant"},
        {"content",
         {block("thinking", "thinking", "hm"),
          block("text", "text", "I look."),
          {{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", {{"a", 1}}}}}}},
       {{"role", "user"},
        {"content",
         {{{"type", "tool_result"},
           {"tool_use_id", "t1"},
           {"content", {block("text", "text", "see "), block("image", "source", Json::object())}}},
          block("text", "text", "and?")}}},
       {{"role", "system"}, {"content", "Be quick."}}},
      "Be brief.");
  ASSERT_EQ(said.error, "");
  const Json& messages = said.input.messages;
  ASSERT_EQ(messages.size(), 6u) << messages;
  EXPECT_EQ(messages[2]["reasoning_content"], "hm");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"], Json({{"a", 1}}));
  EXPECT_EQ(messages[3], Json({{"role", "tool"},
                               {"content", "see [image left out: this model reads text only]"},
                               {"tool_call_id", "t1"}}));
  EXPECT_EQ(messages[4]["content"], "and?");
  EXPECT_EQ(messages[5]["role"], "system");
}

TEST(AnthropicInput, TheHeaderOfARequestIsNoPartOfASystemMessageThatComesFirst) {
  const char* kText = "x-anthropic-billing-header: cch=1\nBe brief.";
  const Json user = {{"role", "user"}, {"content", "go"}};
  const Json contents[] = {kText, Json::array({block("text", "text", kText)})};
  for (const Json& content : contents) {
    const Json system = {{"role", "system"}, {"content", content}};
    EXPECT_EQ(read({system, user}).input.messages[0]["content"], "Be brief.");
    EXPECT_EQ(read({user, system}).input.messages[1]["content"], kText);
  }
}

TEST(AnthropicInput, ACompactionStandsForWhatCameBefore) {
  const Read said =
      read({{{"role", "user"}, {"content", "long ago"}},
            {{"role", "assistant"},
             {"content",
              {block("text", "text", "old"), block("compaction", "content", "We met."),
               block("text", "text", "new")}}},
            {{"role", "user"}, {"content", "on"}}},
           "Be brief.");
  ASSERT_EQ(said.error, "");
  const Json& messages = said.input.messages;
  ASSERT_EQ(messages.size(), 4u) << messages;
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "Summary of the conversation so far:\nWe met.");
  EXPECT_EQ(messages[2]["content"], "new");
  const Read failed =
      read({{{"role", "user"}, {"content", "a"}},
            {{"role", "assistant"},
             {"content", {block("compaction", "content", nullptr), block("text", "text", "b")}}},
            {{"role", "user"}, {"content", "c"}}});
  EXPECT_EQ(failed.input.messages.size(), 3u) << "one that failed is none";
}

TEST(AnthropicInput, AToolOfTheConversationIsOffered) {
  const Json definition = {{"type", "tool_definition"}, {"definition", {{"name", "late"}}}};
  const Read said =
      read({{{"role", "user"}, {"content", "a"}},
            {{"role", "system"}, {"content", {block("tool_addition", "tool", definition)}}}});
  ASSERT_EQ(said.error, "");
  EXPECT_EQ(said.tools.clients.at(0).shown, "late");
}

TEST(AnthropicInput, MistakesAreNamedWithTheirPlace) {
  const Json image = block("image", "source", Json::object());
  const std::pair<Json, const char*> kCases[] = {
      {Json::array(), "'messages' is empty"},
      {{{{"role", "user"}}}, "'messages[0]' needs a role and a content"},
      {{{{"role", "tool"}, {"content", "a"}}}, "'messages[0].role' is \"tool\", expected user"},
      {{{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", {image}}}},
       "'messages[1].content[0]' is of type 'image': image input is not supported"},
      {{{{"role", "user"}, {"content", {{{"type", "tool_use"}}}}}},
       "'messages[0].content[0]' has no name"},
      {{{{"role", "user"},
         {"content", {{{"type", "tool_result"}, {"content", {block("text", "txt", "a")}}}}}}},
       "'messages[0].content[0].content[0]' is a part without text"},
  };
  for (const auto& [messages, message] : kCases) {
    EXPECT_THAT(read(messages).error, HasSubstr(message)) << messages;
  }
}

TEST(AnthropicError, HasTheFormAndTheStatusOfTheProtocol) {
  const std::pair<int, const char*> kCases[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {405, "invalid_request_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"},      {529, "overloaded_error"},
  };
  for (const auto& [status, type] : kCases) {
    const Json json = Json::parse(anthropic_error({status, "m", "", ""}, "req_1"));
    EXPECT_EQ(json["type"], "error");
    EXPECT_EQ(json["error"], Json({{"type", type}, {"message", "m"}})) << status;
    EXPECT_EQ(json["request_id"], "req_1");
  }
  EXPECT_EQ(anthropic_status(503), 529);
  EXPECT_EQ(anthropic_status(429), 429);
  HttpRequest request;
  request.path = "/v1/messages/count_tokens";
  EXPECT_TRUE(takes_anthropic_errors(request));
  request.path = "/v1/messagesx";
  EXPECT_FALSE(takes_anthropic_errors(request));
  request.headers = {{"anthropic-version", "2023-06-01"}};
  EXPECT_TRUE(takes_anthropic_errors(request));
}

struct Reasoning {
  Json fields;
  Json extra;  // variables of the template
  int64_t budget = -1;
};

TEST(ReasoningFields, EveryProtocolsWordsAreUnderstood) {
  const Json on = {{"enable_thinking", true}}, off = {{"enable_thinking", false}};
  const Json none = Json::object();
  const auto with = [](Json extra, const char* effort) {
    extra["reasoning_effort"] = effort;
    return extra;
  };
  const Reasoning kCases[] = {
      {{{"thinking", {{"type", "adaptive"}}}}, none},
      {{{"thinking", {{"type", "adaptive"}, {"display", "summarized"}}}}, none},
      {{{"thinking", {{"type", "between_tools"}}}}, none},
      {{{"thinking", {{"type", "auto"}}}}, none},
      {{{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}}, on, 1024},
      {{{"thinking", {{"type", "disabled"}}}}, off},
      {{{"thinking", false}}, off},
      {{{"thinking", {{"type", "adaptive"}}}, {"output_config", {{"effort", "max"}}}},
       with(none, "high")},
      {{{"thinking", {{"type", "disabled"}}}, {"output_config", {{"effort", "low"}}}},
       with(off, "low")},
      {{{"reasoning_effort", "none"}}, off},
      {{{"reasoning_effort", "minimal"}}, with(on, "low")},
      {{{"reasoning_effort", "xhigh"}}, with(on, "high")},
      {{{"reasoning_effort", "default"}}, none},
      {{{"reasoning", {{"effort", nullptr}, {"summary", "auto"}}}}, none},
      {{{"reasoning", {{"effort", "medium"}}}}, with(on, "medium")},
      {{{"reasoning", {{"enabled", false}}}}, off},
      {{{"reasoning", {{"max_tokens", 7}}}}, none, 7},
      {{{"enable_thinking", false}}, off},
      {{{"chat_template_kwargs", {{"enable_thinking", false}, {"v", 1}}},
        {"reasoning_effort", "high"}},
       with({{"enable_thinking", false}, {"v", 1}}, "high")},
  };
  const ServedModel model;
  for (const auto& [fields, extra, budget] : kCases) {
    FieldReader in(fields);
    ChatInput input;
    ReasoningLimit limit;
    read_reasoning_fields(model, in, input, limit);
    ASSERT_TRUE(in.status()) << fields << in.status().error().message;
    EXPECT_EQ(Json(input.extra), extra) << fields;
    EXPECT_EQ(limit.tokens, budget) << fields;
  }
}

TEST(ReasoningFields, KimiHasAnotherNameForTheEffort) {
  ServedModel model;
  const std::pair<const char*, const char*> kEfforts[] = {
      {"minimal", "low"}, {"low", "low"}, {"medium", "high"}, {"high", "high"},
      {"xhigh", "max"},   {"max", "max"}, {"ultra", "none"},
  };
  model.chat_template.emplace(
      text::ChatTemplate::parse("{%- set effort = thinking_effort | default('none', true) %}"
                                "{%- if effort not in ['none', 'low', 'high', 'max'] %}"
                                "{{- raise_exception('low, `medium`, high and max') }}"
                                "{%- endif %}{{- effort }}")
          .take());
  for (const auto& [effort, want] : kEfforts) {
    text::RenderInput input;
    set_reasoning_effort(model, effort, false, input.extra);
    const Result<std::string> said = model.chat_template->render(input);
    ASSERT_TRUE(said.ok()) << effort << ": " << said.error().message;
    EXPECT_EQ(*said, want) << effort;
    EXPECT_FALSE(input.extra.contains("reasoning_effort"));
  }
}

TEST(ReasoningFields, MistakesAreNamed) {
  const std::pair<Json, const char*> kCases[] = {
      {{{"thinking", {{"type", "deep"}}}}, "'thinking.type' is \"deep\", expected enabled"},
      {{{"thinking", Json::object()}}, "'thinking.type' is missing"},
      {{{"thinking", {{"type", "enabled"}, {"budget_tokens", -1}}}}, "'thinking.budget_tokens'"},
      {{{"chat_template_kwargs", 3}}, "'chat_template_kwargs' is 3"},
      {{{"reasoning", {{"effort", 3}}}}, "'reasoning.effort'"},
      {{{"enable_thinking", "no"}}, "'enable_thinking'"},
  };
  const ServedModel model;
  for (const auto& [fields, message] : kCases) {
    FieldReader in(fields);
    ChatInput input;
    ReasoningLimit limit;
    read_reasoning_fields(model, in, input, limit);
    ASSERT_FALSE(in.status()) << fields;
    EXPECT_THAT(in.status().error().message, HasSubstr(message));
  }
}

TEST(PromptRoles, SystemMessagesAreGathered) {
  const auto message = [](const char* role, const char* text) {
    return Json{{"role", role}, {"content", text}};
  };
  Json list = {message("system", "a"), message("system", "b"),    message("user", "c"),
               message("system", "d"), message("assistant", "e"), message("system", "f")};
  EXPECT_TRUE(gather_system(list));
  EXPECT_EQ(list, Json({message("system", "a\n\nb"), message("user", "c\n\nd"),
                        message("assistant", "e"), message("user", "f")}));
  EXPECT_FALSE(gather_system(list));
  EXPECT_TRUE(join_system(list));
  EXPECT_EQ(list[0], message("user", "a\n\nb\n\nc\n\nd"));
}

}  // namespace
}  // namespace ktx::server
