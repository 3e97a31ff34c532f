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
    if (!message.images.empty()) {
      content = nlohmann::ordered_json::array();
      for (size_t i = 0; i < message.images.size(); ++i) content.push_back({{"type", "image"}});
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

Result<vision::ImagePrompt> encode_chat(const LoadedModel& model, text::MarkedText prompt,
                                        const std::vector<ChatMessage>& messages,
                                        bool allow_control_tokens) {
  if (allow_control_tokens) prompt.outside.clear();
  std::vector<runtime::ReadImage> images;
  for (const ChatMessage& message : messages) {
    images.insert(images.end(), message.images.begin(), message.images.end());
  }
  return vision::with_images(model.tokenizer, model.engine->plan().facts.image, std::move(prompt),
                             images);
}

}  // namespace ktx::tools
