// Renders conversations as prompts with the plan's chat template.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/ktx-run/loaded_model.h"

namespace ktx::tools {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// The prompt up to where the assistant begins. Fails when the model has no
// template, or when the template refuses the conversation.
// `variables`: more of the template's, by name.
Result<std::string> render_chat(const LoadedModel& model, const std::vector<ChatMessage>& messages,
                                const nlohmann::ordered_json& variables);

}  // namespace ktx::tools
