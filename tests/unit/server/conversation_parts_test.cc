#include "lib/server/request/conversation_parts.h"

#include <gmock/gmock.h>

namespace ktx::server {
namespace {

using ::testing::HasSubstr;
using Types = std::vector<const char*>;

struct Listed {
  Protocol protocol;
  Held kind;
  Types types;
};
// What the official packages of November 2026 (openai 3.57, anthropic of that month) know, and
// parts of Mistral's.
const Listed kListed[] = {
    {Protocol::Chat, Held::Tool, {"function", "custom"}},
    {Protocol::Chat,
     Held::Part,
     {"text", "image_url", "input_audio", "file", "refusal", "thinking", "reference",
      "document_url", "resource", "resource_link", "reasoning", "redacted_thinking", "document",
      "search_result", "compaction", "server_tool_use", "web_search_tool_result"}},
    {Protocol::Responses,
     Held::Tool,
     {"function", "file_search", "computer", "computer_use_preview", "web_search",
      "web_search_2025_08_26", "mcp", "code_interpreter", "programmatic_tool_calling",
      "image_generation", "local_shell", "shell", "custom", "namespace", "tool_search",
      "web_search_preview", "web_search_preview_2025_03_11", "apply_patch"}},
    {Protocol::Responses,
     Held::Item,
     {"message",
      "file_search_call",
      "computer_call",
      "computer_call_output",
      "web_search_call",
      "function_call",
      "function_call_output",
      "tool_search_call",
      "tool_search_output",
      "additional_tools",
      "configuration_update",
      "reasoning",
      "compaction",
      "image_generation_call",
      "code_interpreter_call",
      "local_shell_call",
      "local_shell_call_output",
      "shell_call",
      "shell_call_output",
      "apply_patch_call",
      "apply_patch_call_output",
      "mcp_list_tools",
      "mcp_approval_request",
      "mcp_approval_response",
      "mcp_call",
      "custom_tool_call_output",
      "custom_tool_call",
      "compaction_trigger",
      "item_reference",
      "program",
      "program_output"}},
    {Protocol::Responses,
     Held::Part,
     {"input_text", "output_text", "refusal", "input_image", "input_file", "input_audio",
      "reasoning_text", "summary_text", "computer_screenshot"}},
    {Protocol::Messages,
     Held::Tool,
     {"custom",
      "bash_20241022",
      "bash_20250124",
      "code_execution_20250522",
      "code_execution_20260521",
      "browser_toolset_20260801",
      "computer_20241022",
      "computer_20251124",
      "computer_toolset_20260801",
      "memory_20250818",
      "text_editor_20241022",
      "text_editor_20250728",
      "web_search_20250305",
      "web_search_20260318",
      "web_fetch_20250910",
      "web_fetch_20260318",
      "advisor_20260301",
      "tool_search_tool_bm25_20251119",
      "tool_search_tool_regex",
      "mcp_toolset",
      "web_search_20991231"}},
    {Protocol::Messages,
     Held::Part,
     {"text",
      "image",
      "document",
      "search_result",
      "thinking",
      "redacted_thinking",
      "tool_use",
      "tool_result",
      "server_tool_use",
      "web_search_tool_result",
      "web_fetch_tool_result",
      "advisor_tool_result",
      "code_execution_tool_result",
      "bash_code_execution_tool_result",
      "text_editor_code_execution_tool_result",
      "tool_search_tool_result",
      "mcp_tool_use",
      "mcp_tool_result",
      "container_upload",
      "compaction",
      "tool_addition",
      "tool_removal",
      "mcp_tool_listing",
      "fallback",
      "tool_reference",
      "browser_state"}},
};

TEST(ConversationParts, EveryTypeOfTheProtocolsHasARow) {
  for (const Listed& listed : kListed) {
    for (const char* type : listed.types) {
      EXPECT_NE(find_held(listed.protocol, listed.kind, type), nullptr) << type;
    }
  }
}

TEST(ConversationParts, AreOfTheirProtocolAndKind) {
  EXPECT_EQ(find_held(Protocol::Chat, Held::Tool, "local_shell"), nullptr);
  EXPECT_EQ(find_held(Protocol::Responses, Held::Item, "ghost_snapshot")->as, HeldAs::Skipped);
  EXPECT_EQ(find_held(Protocol::Messages, Held::Part, "image_url"), nullptr);
  EXPECT_EQ(find_held(Protocol::Responses, Held::Part, "message"), nullptr);
  EXPECT_EQ(find_held(Protocol::Messages, Held::Tool, "web_search_20250305")->as, HeldAs::Skipped);
  EXPECT_EQ(find_held(Protocol::Messages, Held::Tool, "custom")->as, HeldAs::Function);
}

TEST(ConversationParts, AnUnknownTypeIsRefusedByItsName) {
  const ApiError error = refuse_held(Protocol::Chat, Held::Tool, "telepathy\n", "tools[2]");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "tools[2]");
  EXPECT_EQ(error.message, "'tools[2]' is of type 'telepathy\\x0a', expected function or custom");
  EXPECT_THAT(
      refuse_held(Protocol::Responses, Held::Item, "item_reference", "input[0]").message,
      HasSubstr("'input[0]' is of type 'item_reference', which is not read (reference to an "
                "item: nothing is stored here)"));
}

TEST(ConversationParts, NotesOfARequestAreFew) {
  Notes notes;
  for (int i = 0; i < 1000; ++i) {
    note_skipped(*find_held(Protocol::Responses, Held::Item, "web_search_call"), "input[7]", notes);
  }
  EXPECT_EQ(notes.size(), 16u);
  EXPECT_EQ(notes[0], "input[7]: web search is left out");
}

}  // namespace
}  // namespace ktx::server
