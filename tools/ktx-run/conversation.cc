#include "tools/ktx-run/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ktx::tools {

void Conversation::reset(const std::string& system) {
  messages_.clear();
  if (!system.empty()) add("system", system);
}

size_t Conversation::drop_oldest_turn() {
  const auto is_question = [](const ChatMessage& message) { return message.role == "user"; };
  const auto begin = std::find_if(messages_.begin(), messages_.end(), is_question);
  if (begin == messages_.end()) return 0;
  const auto end = std::find_if(begin + 1, messages_.end(), is_question);
  const bool waits_for_answer = messages_.back().role == "user";
  if (end == messages_.end() && waits_for_answer) return 0;
  const auto count = static_cast<size_t>(end - begin);
  messages_.erase(begin, end);
  return count;
}

std::string Conversation::to_json() const {
  nlohmann::ordered_json json;
  json["ktx_conversation"] = 1;
  json["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages_) {
    json["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status Conversation::from_json(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto list = json.is_object() ? json.find("messages") : json.end();
  if (json.is_discarded() || !json.is_object() || list == json.end() || !list->is_array()) {
    return Error{"a session, but not one of chat"};
  }
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& item : *list) {
    if (!item.is_object() || !item.contains("role") || !item["role"].is_string() ||
        !item.contains("content") || !item["content"].is_string()) {
      return Error{"a message needs a role and a content"};
    }
    messages.push_back({item["role"], item["content"]});
  }
  messages_ = std::move(messages);
  return {};
}

}  // namespace ktx::tools
