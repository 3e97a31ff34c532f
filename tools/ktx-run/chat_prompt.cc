#include "tools/ktx-run/chat_prompt.h"

#include <utility>

#include "lib/text/answers/reasoning.h"

namespace ktx::tools {

Result<text::MarkedText> render_chat(const LoadedModel& model,
                                     const std::vector<ChatMessage>& messages,
                                     const nlohmann::ordered_json& variables) {
  const plan::PlanChatTemplate& strings = model.engine->plan().chat_template;
  text::RenderInput input;
  for (const ChatMessage& message : messages) {
    nlohmann::ordered_json content = message.content;
    if (message.images > 0) {
      content = nlohmann::ordered_json::array();
      for (size_t i = 0; i < message.images; ++i) content.push_back({{"type", "image"}});
      content.push_back({{"type", "text"}, {"text", message.content}});
    }
    input.messages.push_back({{"role", message.role}, {"content", std::move(content)}});
  }
  input.bos_token = strings.bos;
  input.eos_token = strings.eos;
  input.extra = variables;
  if (const auto tags = text::detect_reasoning(model.chat_template->source())) {
    input.answer_tags = {std::string(tags->open), std::string(tags->close)};
  }
  return model.chat_template->render_marked(input);
}

std::vector<int32_t> encode_chat(const LoadedModel& model, const text::MarkedText& prompt,
                                 bool allow_control_tokens) {
  return allow_control_tokens ? model.tokenizer.encode_prompt(prompt.text)
                              : model.tokenizer.encode_prompt(prompt.text, prompt.outside);
}

}  // namespace ktx::tools
