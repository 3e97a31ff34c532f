#include "lib/server/openai/responses_input.h"

#include <fmt/format.h>

#include "lib/server/openai/response_calls.h"
#include "lib/server/request/content_parts.h"

namespace ktx::server {
namespace {

class ItemReader {
 public:
  ItemReader(ChatInput& input, RequestTools& tools) : input_(input), tools_(tools) {}

  ApiStatus read(const Json& item, const std::string& where) {
    if (!item.is_object()) {
      return bad_place(where, fmt::format("is {}, expected an object", show(item)));
    }
    const auto given = item.find("type");
    const bool untyped = given == item.end() || given->is_null();
    const std::string type = untyped ? "message" : string_or(item, "type", "");
    const HeldRow* row = find_held(Protocol::Responses, Held::Item, type);
    if (row == nullptr) return refuse_held(Protocol::Responses, Held::Item, type, where);
    switch (row->as) {
      case HeldAs::Message:
        return message(item, where);
      case HeldAs::Reasoning:
        return reasoning(item, where);
      case HeldAs::Call:
        return call(item, where);
      case HeldAs::Result:
        return result(item, where);
      case HeldAs::Tools:
        return more_tools(item, type, where);
      case HeldAs::AsJson:
        append(answer()["content"], as_json(item));
        return {};
      case HeldAs::Replaced:
        append(answer()["content"], left_out(*row));
        return {};
      case HeldAs::Refused:
        return refuse_held(Protocol::Responses, Held::Item, type, where);
      default:
        note_skipped(*row, where, input_.notes);
        return {};
    }
  }

  ApiStatus message(const Json& item, const std::string& where) {
    const std::string role = string_or(item, "role", "");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return ApiError{400,
                      role.empty() ? fmt::format("'{}' has no role", where)
                                   : fmt::format("'{}.role' is {}, expected user, assistant, "
                                                 "system or developer",
                                                 where, show(item["role"])),
                      where + ".role", ""};
    }
    const ContentPlace place = {
        Protocol::Responses, where + ".content", role == "user",
        input_.messages.empty() && (role == "system" || role == "developer"),
        role == "user" ? input_.seen() : nullptr};
    const auto content = item.find("content");
    if (content == item.end()) {
      return ApiError{400, fmt::format("'{}' has no content", where), place.where, ""};
    }
    ContentText said;
    KTX_TRY(read_content(*content, place, input_.notes, said));
    if (role != "assistant") {
      reasoning_.clear();
      input_.messages.push_back({{"role", role}, {"content", said.text}});
      return {};
    }
    Json& all = answer()["content"];
    if (all != "" && !said.text.empty()) append(all, "\n\n");
    append(all, said.text);
    return {};
  }

 private:
  static void append(Json& text, const std::string& more) { text.get_ref<std::string&>() += more; }

  // The assistant's message that the item belongs to.
  Json& answer() {
    Json& messages = input_.messages;
    if (messages.empty() || messages.back()["role"] != "assistant") {
      messages.push_back({{"role", "assistant"}, {"content", ""}});
    }
    Json& last = messages.back();
    if (!reasoning_.empty()) {
      last["reasoning_content"] = string_or(last, "reasoning_content", "") + reasoning_;
      reasoning_.clear();
    }
    return last;
  }

  // Kept for the message that follows: reasoning alone is none.
  ApiStatus reasoning(const Json& item, const std::string& where) {
    ContentText said;
    for (const char* key : {"content", "summary"}) {
      const auto parts = item.find(key);
      if (parts == item.end() || !said.text.empty()) continue;
      const ContentPlace place = {Protocol::Responses, fmt::format("{}.{}", where, key)};
      KTX_TRY(read_content(*parts, place, input_.notes, said));
    }
    reasoning_ += said.text;
    return {};
  }

  ApiStatus call(const Json& item, const std::string& where) {
    PastCall past;
    KTX_TRY(read_call_item(item, where, past));
    Json& message = answer();
    if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
    message["tool_calls"].push_back(
        {{"type", "function"},
         {"id", past.id},
         {"function", {{"name", past.name}, {"arguments", past.arguments}}}});
    return {};
  }

  ApiStatus result(const Json& item, const std::string& where) {
    reasoning_.clear();
    const auto output = item.find("output");
    const ContentPlace place = {Protocol::Responses, where + ".output", false, false,
                                input_.seen()};
    ContentText said;
    const bool parts = output != item.end() && output->is_array() && !output->empty() &&
                       (*output)[0].is_object() && (*output)[0].contains("type");
    if (parts) {
      KTX_TRY(read_content(*output, place, input_.notes, said));
    } else if (output != item.end() && output->is_object() && output->contains("type")) {
      KTX_TRY(read_part(*output, place, input_.notes, said));
    } else {
      said.text = output_text(item);
    }
    add_result(item, said.text);
    return {};
  }

  void add_result(const Json& item, const std::string& text) {
    const std::string id = string_or(item, "call_id", string_or(item, "id", ""));
    input_.messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
  }

  // A search has found them, or the client adds them.
  ApiStatus more_tools(const Json& item, const std::string& type, const std::string& where) {
    const auto list = item.find("tools");
    const size_t before = tools_.clients.size();
    if (list != item.end() && list->is_array()) {
      KTX_TRY(read_tools(*list, ToolForm::Flat, where + ".tools", tools_));
    }
    if (type != "tool_search_output" || string_or(item, "call_id", "").empty()) return {};
    std::string names = "Tools found:";
    for (size_t i = before; i < tools_.clients.size(); ++i) names += " " + tools_.clients[i].shown;
    add_result(item, tools_.clients.size() == before ? "No more tools were found." : names);
    return {};
  }

  ChatInput& input_;
  RequestTools& tools_;
  std::string reasoning_;
};

}  // namespace

ApiStatus read_responses_input(const Json& given, const std::string& instructions, ChatInput& input,
                               RequestTools& tools) {
  ItemReader reader(input, tools);
  input.messages = Json::array();
  if (!instructions.empty()) {
    const Json system = {{"role", "system"}, {"content", instructions}};
    KTX_TRY(reader.message(system, "instructions"));
  }
  if (given.is_string()) {
    input.messages.push_back({{"role", "user"}, {"content", given}});
  } else if (!given.is_array()) {
    return bad_place("input", "must be a string or a list of items");
  } else {
    for (size_t i = 0; i < given.size(); ++i) {
      KTX_TRY(reader.read(given[i], fmt::format("input[{}]", i)));
    }
  }
  return check_messages(input.messages, "input");
}

}  // namespace ktx::server
