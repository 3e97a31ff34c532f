// The table of what a conversation can hold (conversation_parts.def), looked up.
//
//   const HeldRow* row = find_held(Protocol::Messages, Held::Tool, "web_search_20250305");
//   row->as == HeldAs::Skipped
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/server/http/http_server.h"
#include "lib/server/http/json_fields.h"

namespace ktx::server {

enum class Protocol : unsigned { Chat = 1, Responses = 2, Messages = 4 };
enum class Held { Tool, Item, Part };

enum class HeldAs {
  Text,       // as it is
  Refusal,    // the text of its refusal
  Reasoning,  // of the assistant: `reasoning_content` of the message
  Summary,    // its text, instead of all that came before it
  Document,   // its text, with its title; one that is no text as Media
  ToolName,   // the name of a tool that a search has found
  AsJson,     // its own JSON without what only its server can read
  Image,      // shown to a model that sees; else as Media
  Media,      // in a user's message an error; elsewhere Replaced
  Replaced,   // by a short text that says what is left out
  Skipped,    // with a note
  Refused,
  Message,
  Call,
  Result,
  Tools,      // more tools, from there on; here they are offered from the beginning
  Function,   // a tool with a schema
  Custom,     // a tool with one text
  Namespace,  // of tools
  Known,      // a tool that the client runs and that has no schema of its own (client_tools.h)
};

struct HeldRow {
  unsigned protocols;  // bits of Protocol
  Held kind;
  std::string_view type;
  HeldAs as;
  std::string_view name;
};

// The first row; null where the protocol has no such type.
const HeldRow* find_held(Protocol protocol, Held kind, std::string_view type);

// For a type without a row, or Refused: "'input[2]' is of type 'foo', which ...". `where` is its
// place in the request.
ApiError refuse_held(Protocol protocol, Held kind, const std::string& type,
                     const std::string& where);

// What was left out of a request, a line each (HttpReply::add_note).
using Notes = std::vector<std::string>;
void note_skipped(const HeldRow& row, const std::string& where, Notes& notes);
void send_notes(const Notes& notes, HttpReply& reply);

}  // namespace ktx::server
