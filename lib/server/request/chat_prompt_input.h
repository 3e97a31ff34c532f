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

#include "lib/server/http/json_fields.h"
#include "lib/server/models/served_model.h"
#include "lib/server/request/conversation_parts.h"
#include "lib/server/request/image_asker.h"
#include "lib/server/request/request_images.h"

namespace ktx::server {

inline constexpr size_t kMaxMessages = 4096;
inline constexpr size_t kMaxToolCalls = 16384;  // of all messages: a template takes some 10 us each

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
  // The answer is a call, as bare JSON, which some templates do not describe.
  bool forced_call = false;
  bool show_reasoning = true;  // false: the client gets the answer alone
  Notes notes;                 // of what was left out
  // The messages' images; nothing: the model reads text only.
  std::optional<RequestImages> images = {};
  RequestImages* seen() { return images ? &*images : nullptr; }
  // Instead of messages: what they have become, as text and, with what of the answer is
  // there already, as tokens (resumed_slot.h).
  std::string rendered;
  std::vector<int32_t> rendered_ids;
};

// Empty, and with room for images where the model sees.
ChatInput input_for(const ServedModel& model);

struct ChatPrompt {
  std::string text;
  text::TextSpans outside;  // of the text, what came with the request: no control tokens there
  std::vector<int32_t> ids;
  std::vector<runtime::ImageTokens> images;  // of these
  bool reasoning_open = false;               // the prompt ends inside the reasoning
};

// Renders and tokenises. What the assistant has begun to say stands behind the begin of its
// message, so that the model goes on with it. A template that refuses the conversation is the
// client's error (400), with the place in the template. Images are looked at, which may take
// seconds; those of one request together are at most kMaxImages.
ApiResult<ChatPrompt> make_prompt(const ServedModel& model, const ChatInput& input,
                                  ImageAsker& asker);

// A prompt that is no conversation: its author's text. Images stand where the text has the model's
// mark, or before it; there is at least one.
ApiResult<ChatPrompt> make_plain_prompt(const ServedModel& model, std::string text,
                                        const RequestImages& images, ImageAsker& asker);

// continue_final_message and add_generation_prompt, which exclude each other. Without them a last
// message of the assistant is continued.
void read_continuation(FieldReader& in, ChatInput& input);

// What the request leaves open of enable_thinking, --reasoning says. A template that opens the
// reasoning anyway is overruled where it is off.
void apply_reasoning_default(const ServedModel& model, ChatInput& input);

// OpenAI's messages in our form: content parts become one text (content_parts.h). What was left out
// is noted in `notes`. `images` takes those of users and tools; null: the model has none.
ApiResult<Json> read_messages(const Json& list, Notes& notes, RequestImages* images = nullptr);

// Messages in our form, from `field` of the request: not empty, within the limits, and no two of
// the assistant at their end.
ApiStatus check_messages(const Json& messages, const std::string& field);

}  // namespace ktx::server
