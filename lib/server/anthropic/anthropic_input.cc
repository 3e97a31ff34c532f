#include "lib/server/anthropic/anthropic_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/request/content_parts.h"

namespace ktx::server {
namespace {

// One message that is being read.
struct MessageReader {
  ChatInput& input;
  RequestTools& tools;
  const std::string role;
  const bool begins_prompt = false;
  bool own = false;
  Json calls = Json::array();
  ContentText said = {};

  ApiStatus block(const Json& block, const std::string& where) {
    const HeldRow* row =
        block.is_object() ? find_held(Protocol::Messages, Held::Part, string_or(block, "type", ""))
                          : nullptr;
    const HeldAs as = row == nullptr ? HeldAs::Text : row->as;
    if (as == HeldAs::Call) return call(block, where);
    if (as == HeldAs::Result) return result(block, where);
    if (as == HeldAs::Tools) return added_tool(block, where);
    if (as == HeldAs::Summary) {
      summary(block);
      return {};
    }
    RequestImages* const images = role == "user" ? input.seen() : nullptr;
    return read_part(block, {Protocol::Messages, where, own, begins_prompt, images}, input.notes,
                     said);
  }

  ApiStatus call(const Json& block, const std::string& where) {
    const std::string name = string_or(block, "name", "");
    if (name.empty()) return bad_place(where, "has no name");
    const auto given = block.find("input");
    calls.push_back(
        {{"id", string_or(block, "id", "")},
         {"type", "function"},
         {"function",
          {{"name", name}, {"arguments", given == block.end() ? Json::object() : Json(*given)}}}});
    return {};
  }

  ApiStatus result(const Json& block, const std::string& where) {
    ContentText text;
    if (const auto content = block.find("content"); content != block.end()) {
      const ContentPlace place = {Protocol::Messages, where + ".content", false, false,
                                  input.seen()};
      KTX_TRY(read_content(*content, place, input.notes, text));
    }
    Json message = {{"role", "tool"}, {"content", text.text}};
    if (block.contains("tool_use_id")) message["tool_call_id"] = block["tool_use_id"];
    input.messages.push_back(std::move(message));
    return {};
  }

  // A definition in the conversation; a reference is to a tool that is offered anyway.
  ApiStatus added_tool(const Json& block, const std::string& where) {
    const auto tool = block.find("tool");
    if (tool == block.end() || !tool->is_object() || !tool->contains("definition")) {
      return {};
    }
    const Json list = Json::array({(*tool)["definition"]});
    return read_tools(list, ToolForm::Anthropic, where + ".tool.definition", tools);
  }

  // It stands for all that came before; one without text is of an attempt that failed.
  void summary(const Json& block) {
    const std::string text = string_or(block, "content", "");
    if (text.empty()) return;
    Json kept = Json::array();
    if (!input.messages.empty() && input.messages[0]["role"] == "system") {
      kept.push_back(input.messages[0]);
    }
    kept.push_back({{"role", "user"}, {"content", "Summary of the conversation so far:\n" + text}});
    input.messages = std::move(kept);
    calls = Json::array();
    said = {};
  }

  void end() {
    if (said.text.empty() && calls.empty()) return;
    Json message = {{"role", role}, {"content", said.text}};
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
    input.messages.push_back(std::move(message));
  }
};

ApiStatus read_message(const Json& from, const std::string& where, ChatInput& input,
                       RequestTools& tools) {
  if (!from.is_object() || !from.contains("role") || !from.contains("content")) {
    return bad_place(where, "needs a role and a content");
  }
  const std::string role = string_or(from, "role", "");
  if (role != "user" && role != "assistant" && role != "system") {
    return bad_place(where + ".role",
                     fmt::format("is {}, expected user, assistant or system", show(from["role"])));
  }
  const Json& content = from["content"];
  MessageReader reader{input, tools, role, role == "system" && input.messages.empty()};
  if (!content.is_array()) {
    const ContentPlace place = {Protocol::Messages, where + ".content", false,
                                reader.begins_prompt};
    KTX_TRY(read_content(content, place, input.notes, reader.said));
    input.messages.push_back({{"role", role}, {"content", reader.said.text}});
    return {};
  }
  // What stands beside the results of tools comes from the client, as a page that a tool has read.
  reader.own =
      role == "user" && std::none_of(content.begin(), content.end(), [](const Json& block) {
        return string_or(block, "type", "") == "tool_result";
      });
  for (size_t i = 0; i < content.size(); ++i) {
    KTX_TRY(reader.block(content[i], fmt::format("{}.content[{}]", where, i)));
  }
  reader.end();
  return {};
}

}  // namespace

ApiStatus read_anthropic_messages(const Json* system, const Json& list, ChatInput& input,
                                  RequestTools& tools) {
  input.messages = Json::array();
  if (system != nullptr) {
    ContentText said;
    const ContentPlace place = {Protocol::Messages, "system", false, true};
    KTX_TRY(read_content(*system, place, input.notes, said));
    if (!said.text.empty()) {
      input.messages.push_back({{"role", "system"}, {"content", said.text}});
    }
  }
  if (list.empty()) {
    return bad_place("messages", "is empty; the model needs at least one");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    KTX_TRY(read_message(list[i], fmt::format("messages[{}]", i), input, tools));
  }
  return check_messages(input.messages, "messages");
}

}  // namespace ktx::server
