// The messages of a chat.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/support/result.h"
#include "tools/ktx-run/chat_prompt.h"

namespace ktx::tools {

class Conversation {
 public:
  const std::vector<ChatMessage>& messages() const { return messages_; }
  size_t size() const { return messages_.size(); }

  // Forgets all; `system` (may be empty) is the first message then.
  void reset(const std::string& system);
  void add(const char* role, const std::string& content,
           std::vector<runtime::ReadImage> images = {}) {
    messages_.push_back({role, content, std::move(images)});
  }
  void take_back() { messages_.pop_back(); }

  // Forgets the oldest question and what was answered to it; system messages stay, and so
  // does the last question. Returns how many messages went, 0 when there is nothing to drop.
  size_t drop_oldest_turn();

  // As the note of a session file.
  std::string to_json() const;
  Status from_json(const std::string& text);

 private:
  std::vector<ChatMessage> messages_;
};

}  // namespace ktx::tools
