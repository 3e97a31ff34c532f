// The conversation of a request, in one form for all protocols, and the prompt made from it.
//
// Messages have the fields that chat templates read: role, content (a string) and, where
// present, tool_calls, tool_call_id, name, reasoning_content. A developer's message is a system
// message for templates without that role.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/server/json_fields.h"
#include "lib/server/served_model.h"

namespace ktx::server {

inline constexpr size_t kMaxMessages = 4096;
inline constexpr size_t kMaxToolCalls = 16384;  // of all messages: a template takes some 10 us each
inline constexpr size_t kMaxTools = 256;

struct ChatInput {
  Json messages = Json::array();
  Json tools;                   // null: none
  Json extra = Json::object();  // variables of the template: enable_thinking, ...
  bool add_generation_prompt = true;
  // A last message of the assistant is the begin of the answer.
  bool continue_last = true;
  // The prompt ends the reasoning that the template opens (--reasoning off).
  bool end_reasoning = false;
  // No reasoning first where it would come in a message of its own (harmony).
  bool answer_at_once = false;
  // The answer is a call, as bare JSON, of which some templates do not tell.
  bool forced_call = false;
  // Instead of messages: what they have become, as text and, with what of the answer is
  // there already, as tokens (resumed_slot.h).
  std::string rendered;
  std::vector<int32_t> rendered_ids;
};

struct ChatPrompt {
  std::string text;
  text::TextSpans outside;  // of the text, what came with the request: no control tokens there
  std::vector<int32_t> ids;
  bool reasoning_open = false;  // the prompt ends inside the reasoning
};

// Renders and tokenises. What the assistant has begun to say stands behind the begin of its
// message, so that the model goes on with it. A template that refuses the conversation is the
// client's error (400), with the place in the template.
std::optional<ApiError> make_prompt(const ServedModel& model, const ChatInput& input,
                                    ChatPrompt& prompt);

// continue_final_message and add_generation_prompt, which exclude each other. Without them a last
// message of the assistant is continued.
void read_continuation(FieldReader& in, ChatInput& input);

// What the request leaves open of enable_thinking, --reasoning says. A template that opens the
// reasoning anyway is overruled where it is off.
void apply_reasoning_default(const ServedModel& model, ChatInput& input);

// OpenAI's messages in our form: content parts become one text. Images and audio are refused.
std::optional<ApiError> read_messages(const Json& list, Json& messages);

// A request's `reasoning_effort` as variables of the template: "none" turns reasoning off,
// "minimal" is "low". A value in chat_template_kwargs stays.
void set_reasoning_effort(const std::string& effort, Json& extra);

// How a protocol writes a tool: {"type": "function", "function": {"name", "parameters"}},
// {"type": "function", "name", "parameters"} (Responses), {"name", "input_schema"} (Anthropic).
enum class ToolForm { Nested, Flat, Anthropic };
// Of a tool's schema: "function.parameters".
std::string_view schema_field(ToolForm form);

// Tools, checked, in the first form: a name, and a schema that is an object. Tools that a
// vendor's own server runs are refused.
std::optional<ApiError> read_tools(const Json& list, ToolForm form, Json& tools);

// The text of a content that is a string, null or a list of parts.
std::optional<ApiError> flatten_content(const Json& content, const std::string& where,
                                        std::string& text);

}  // namespace ktx::server
