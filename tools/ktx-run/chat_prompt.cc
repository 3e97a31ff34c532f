#include "tools/ktx-run/chat_prompt.h"

#include <fmt/format.h>

namespace ktx::tools {

Result<std::string> render_chat(const LoadedModel& model, const std::vector<ChatMessage>& messages,
                                const nlohmann::ordered_json& variables) {
  if (!model.chat_template) {
    return Error{"the model has no chat template that works; `generate --prompt` takes plain text"};
  }
  const plan::PlanChatTemplate& strings = model.engine->plan().chat_template;
  text::RenderInput input;
  for (const ChatMessage& message : messages) {
    input.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  input.bos_token = strings.bos;
  input.eos_token = strings.eos;
  input.extra = variables;
  return model.chat_template->render(input);
}

}  // namespace ktx::tools
