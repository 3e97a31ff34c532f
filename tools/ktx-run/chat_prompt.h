// Renders conversations as prompts with the plan's chat template.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/runtime/images/image_reader.h"
#include "lib/support/result.h"
#include "lib/vision/image_prompt.h"
#include "tools/ktx-run/loaded_model.h"

namespace ktx::tools {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  std::vector<runtime::ReadImage> images = {};  // before it
};

// The prompt up to where the assistant begins. Fails when the template refuses the conversation;
// the model has one (choose_template).
// `variables`: more of the template's, by name.
Result<text::MarkedText> render_chat(const LoadedModel& model,
                                     const std::vector<ChatMessage>& messages,
                                     const nlohmann::ordered_json& variables);
// Its tokens: what `messages` hold is text, also where it looks like a control token, unless these
// are allowed.
Result<vision::ImagePrompt> encode_chat(const LoadedModel& model, text::MarkedText prompt,
                                        const std::vector<ChatMessage>& messages,
                                        bool allow_control_tokens);

}  // namespace ktx::tools
