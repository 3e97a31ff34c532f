#include "lib/server/openai/responses_input.h"

#include <gmock/gmock.h>

#include "lib/server/openai/response_calls.h"

namespace ktx::server {
namespace {

using ::testing::HasSubstr;

struct Read {
  ChatInput input;
  RequestTools tools;
  std::string error;
};
Read read(const Json& items, const std::string& instructions = "") {
  Read out;
  const auto read = read_responses_input(items, instructions, out.input, out.tools);
  if (!read) out.error = read.error().message;
  return out;
}
Json user(const char* text) {
  return {{"type", "message"},
          {"role", "user"},
          {"content", {{{"type", "input_text"}, {"text", text}}}}};
}

TEST(ResponsesInput, ATurnOfTheAssistantIsOneMessage) {
  const Json items = {
      user("go"),
      {{"type", "reasoning"},
       {"summary", Json::array()},
       {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}}},
      {{"type", "message"},
       {"role", "assistant"},
       {"content", {{{"type", "output_text"}, {"text", "I look."}}}}},
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"a\": 1}"}},
      {{"type", "function_call"},
       {"call_id", "c2"},
       {"namespace", "n"},
       {"name", "g"},
       {"arguments", "{}"}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "one"}},
      {{"type", "function_call_output"},
       {"call_id", "c2"},
       {"output", {{{"type", "input_text"}, {"text", "two"}}}}},
      {{"type", "reasoning"}, {"summary", {{{"type", "summary_text"}, {"text", "so"}}}}},
      {{"type", "custom_tool_call"}, {"call_id", "c3"}, {"name", "patch"}, {"input", "p"}},
      {{"type", "custom_tool_call_output"}, {"call_id", "c3"}, {"output", "done"}},
  };
  const Read said = read(items, "Be brief.");
  ASSERT_EQ(said.error, "");
  const Json& messages = said.input.messages;
  ASSERT_EQ(messages.size(), 7u) << messages;
  EXPECT_EQ(messages[0], Json({{"role", "system"}, {"content", "Be brief."}}));
  EXPECT_EQ(messages[2]["content"], "I look.");
  EXPECT_EQ(messages[2]["reasoning_content"], "hm");
  EXPECT_EQ(messages[2]["tool_calls"].size(), 2u);
  EXPECT_EQ(messages[2]["tool_calls"][1]["function"]["name"], "n__g");
  EXPECT_EQ(messages[4], Json({{"role", "tool"}, {"tool_call_id", "c2"}, {"content", "two"}}));
  EXPECT_EQ(messages[5]["reasoning_content"], "so");
  EXPECT_EQ(messages[5]["tool_calls"][0]["function"]["arguments"], "{\"input\":\"p\"}");
}

TEST(ResponsesInput, ItemsOfOtherServersAreToldOrLeftOut) {
  const Read said = read({
      user("go"),
      {{"type", "web_search_call"}, {"id", "w"}, {"status", "completed"}},
      {{"type", "mcp_call"}, {"id", "m"}, {"name", "ask"}, {"arguments", "{}"}, {"output", "yes"}},
      {{"type", "compaction"}, {"encrypted_content", "x"}},
      {{"role", "assistant"}, {"content", {{{"type", "refusal"}, {"refusal", "no"}}}}},
      user("on"),
  });
  ASSERT_EQ(said.error, "");
  ASSERT_EQ(said.input.messages.size(), 3u);
  EXPECT_EQ(
      said.input.messages[1]["content"],
      "[mcp_call {\"name\":\"ask\",\"arguments\":\"{}\",\"output\":\"yes\"}]\n[compacted part "
      "of the conversation left out: it cannot be read here]\n\nno");
  EXPECT_EQ(said.input.notes, Notes{"input[1]: web search is left out"});
}

TEST(ResponsesInput, AnImageOfAToolIsReplacedAndTheUsersOwnIsAnError) {
  const Json image = {{"type", "input_image"}, {"image_url", "data:image/png;base64,AA=="}};
  const Read tool =
      read({user("look"),
            {{"type", "function_call"}, {"call_id", "c"}, {"name", "view"}, {"arguments", "{}"}},
            {{"type", "function_call_output"}, {"call_id", "c"}, {"output", {image}}}});
  ASSERT_EQ(tool.error, "");
  EXPECT_EQ(tool.input.messages[2]["content"], "[image left out: this model reads text only]");
  const Json shot = {{"type", "computer_call_output"},
                     {"call_id", "c"},
                     {"output", {{"type", "computer_screenshot"}, {"image_url", "x"}}}};
  EXPECT_EQ(read({user("look"), shot}).input.messages[1]["content"],
            "[image left out: this model reads text only]");
  const Json own = {{"type", "message"}, {"role", "user"}, {"content", {image}}};
  EXPECT_THAT(read({user("a"), own}).error,
              HasSubstr("'input[1].content[0]' is of type 'input_image': image input"));
}

TEST(ResponsesInput, ToolsThatWereFoundAreOffered) {
  const Json found = {{"type", "tool_search_output"},
                      {"call_id", "s"},
                      {"tools",
                       {{{"type", "namespace"},
                         {"name", "cal"},
                         {"tools", {{{"type", "function"}, {"name", "add"}}}}}}}};
  const Read said = read({user("plan"),
                          {{"type", "tool_search_call"},
                           {"call_id", "s"},
                           {"execution", "client"},
                           {"arguments", {{"query", "calendar"}}}},
                          found});
  ASSERT_EQ(said.error, "");
  EXPECT_EQ(said.tools.clients.at(0).shown, "cal__add");
  const Json& messages = said.input.messages;
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], "{\"query\":\"calendar\"}");
  EXPECT_EQ(messages[2]["content"], "Tools found: cal__add");
}

TEST(ResponsesInput, MistakesAreNamedWithTheirPlace) {
  const std::pair<Json, const char*> kCases[] = {
      {3, "'input' must be a string or a list of items"},
      {Json::array(), "'input' is empty"},
      {{"x"}, "'input[0]' is \"x\", expected an object"},
      {{user("a"), {{"type", "telepathy"}}}, "'input[1]' is of type 'telepathy', expected message"},
      {{{{"type", "item_reference"}, {"id", "i"}}}, "'input[0]' is of type 'item_reference'"},
      {{{{"type", "compaction_trigger"}}},
       "'input[0]' is of type 'compaction_trigger', which is not read (compaction: conversations"},
      {{{{"role", "robot"}, {"content", "a"}}}, "'input[0].role' is \"robot\""},
      {{{{"type", "message"}, {"content", "a"}}}, "'input[0]' has no role"},
      {{{{"role", "user"}}}, "'input[0]' has no content"},
      {{{{"type", "function_call"}, {"call_id", "c"}}}, "'input[0]' has no name"},
  };
  for (const auto& [items, message] : kCases) {
    EXPECT_THAT(read(items).error, HasSubstr(message)) << items;
  }
}

TEST(ResponseCalls, HaveTheFormOfTheirTool) {
  const struct {
    CallForm form;
    const char* arguments;
    Json members;
  } kCases[] = {
      {CallForm::Function,
       R"({"a": 1})",
       {{"type", "function_call"}, {"name", "t"}, {"arguments", R"({"a": 1})"}}},
      {CallForm::Custom,
       R"({"input": "p"})",
       {{"type", "custom_tool_call"}, {"name", "t"}, {"input", "p"}}},
      {CallForm::LocalShell,
       R"({"command": "ls -l"})",
       {{"type", "local_shell_call"},
        {"action",
         {{"command", {"bash", "-lc", "ls -l"}}, {"type", "exec"}, {"env", Json::object()}}}}},
      {CallForm::Shell,
       R"({"commands": ["ls"], "timeout_ms": 5})",
       {{"type", "shell_call"},
        {"action", {{"commands", Json::array({"ls"})}, {"timeout_ms", 5}}}}},
      {CallForm::ApplyPatch,
       R"({"operation": {"type": "delete_file", "path": "a"}})",
       {{"type", "apply_patch_call"}, {"operation", {{"type", "delete_file"}, {"path", "a"}}}}},
      {CallForm::ToolSearch,
       R"({"query": "q"})",
       {{"type", "tool_search_call"}, {"execution", "client"}, {"arguments", {{"query", "q"}}}}},
  };
  for (const auto& [form, arguments, members] : kCases) {
    const ClientTool tool = {"t", "t", "", form};
    Json item = begun_call_item(&tool, "t", "call_1");
    EXPECT_EQ(item["call_id"], "call_1");
    complete_call_item(form, arguments, item);
    for (const auto& [key, value] : members.items()) EXPECT_EQ(item[key], value) << item;
    PastCall past;
    ASSERT_TRUE(read_call_item(item, "input[0]", past));
    EXPECT_EQ(past.id, "call_1");
    // A shell's command in one text comes back in words.
    if (form == CallForm::LocalShell) continue;
    EXPECT_EQ(Json::parse(past.arguments), Json::parse(arguments));
  }
  const ClientTool inner = {"n__t", "t", "n", CallForm::Function};
  EXPECT_EQ(begun_call_item(&inner, "n__t", "")["namespace"], "n");
  EXPECT_EQ(begun_call_item(nullptr, "unknown", "")["name"], "unknown");
}

TEST(ResponseCalls, OutputsOfShellsAreText) {
  const Json output = {
      {"type", "shell_call_output"},
      {"output",
       {{{"stdout", "a\n"}, {"stderr", "b"}, {"outcome", {{"type", "exit"}, {"exit_code", 2}}}},
        {{"stdout", "c"}, {"outcome", {{"type", "timeout"}}}}}}};
  EXPECT_EQ(output_text(output), "a\nb\n[exit code 2]c\n[timed out]");
  EXPECT_EQ(output_text(
                {{"type", "apply_patch_call_output"}, {"status", "failed"}, {"output", "no file"}}),
            "failed: no file");
}

}  // namespace
}  // namespace ktx::server
