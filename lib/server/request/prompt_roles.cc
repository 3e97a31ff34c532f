#include "lib/server/request/prompt_roles.h"

#include <string>
#include <utility>

namespace ktx::server {
namespace {

// Content is a string in our form.
void append_content(Json& message, const std::string& more) {
  std::string& text = message["content"].get_ref<std::string&>();
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

}  // namespace

bool quotes(const std::string& source, const std::string& word) {
  return source.find("'" + word + "'") != std::string::npos ||
         source.find('"' + word + '"') != std::string::npos;
}

void convert_developer(Json& messages, const std::string& source) {
  if (quotes(source, "developer")) return;
  for (Json& message : messages) {
    if (message["role"] == "developer") message["role"] = "system";
  }
}

bool gather_system(Json& messages) {
  Json out = Json::array();
  bool changed = false;
  for (Json& message : messages) {
    const bool begins = out.empty() || (out.size() == 1 && out[0]["role"] == "system");
    if (message["role"] == "system" && !begins) {
      message["role"] = "user";
      changed = true;
    }
    const Json& role = message["role"];
    if (!out.empty() && out.back()["role"] == role && (role == "system" || role == "user")) {
      append_content(out.back(), string_or(message, "content", ""));
      changed = true;
    } else {
      out.push_back(std::move(message));
    }
  }
  messages = std::move(out);
  return changed;
}

bool join_system(Json& messages) {
  if (messages.size() < 2 || messages[0]["role"] != "system" || messages[1]["role"] != "user") {
    return false;
  }
  const std::string question = string_or(messages[1], "content", "");
  messages[1]["content"] = string_or(messages[0], "content", "") + "\n\n" + question;
  messages.erase(0);
  return true;
}

}  // namespace ktx::server
