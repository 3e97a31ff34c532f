// A content, of a message or of a tool's result, as text: a string, null or a list of parts
// (conversation_parts.def says what becomes of each type).
//
//   [{"type": "text", "text": "See "}, {"type": "image", ...}]
//   "See [image left out: this model reads text only]", or a mark (request_images.h)
//
// Safe for any JSON.
#pragma once

#include <optional>
#include <string>

#include "lib/server/request/conversation_parts.h"
#include "lib/server/request/request_images.h"

namespace ktx::server {

struct ContentPlace {
  Protocol protocol = Protocol::Chat;
  std::string where;                // "messages[3].content", of a part "messages[3].content[1]"
  bool own = false;                 // a user's message: what cannot be read is an error
  bool begins_prompt = false;       // of the first system message (request_headers.h)
  RequestImages* images = nullptr;  // takes them; null: the model, or this place, has none
};

struct ContentText {
  std::string text, reasoning;
};

// Both add to `out`.
ApiStatus read_content(const Json& content, const ContentPlace& place, Notes& notes,
                       ContentText& out);
ApiStatus read_part(const Json& part, const ContentPlace& place, Notes& notes, ContentText& out);

// An item or a part for As::AsJson: "[web_fetch_tool_result {"url": ...}]".
std::string as_json(const Json& part);
// "[image left out: this model reads text only]"
std::string left_out(const HeldRow& row, bool sees = false);

// Reasoning that is not to be shown travels in the signature of its block, so that the client
// brings it back with the next request.
std::string sign_reasoning(const std::string& reasoning);

}  // namespace ktx::server
