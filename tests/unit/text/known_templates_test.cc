#include "lib/text/chat_template/known_templates.h"

#include <gmock/gmock.h>

#include "lib/text/chat_template/chat_template.h"
#include "lib/text/chat_template/template_probe.h"

namespace ktx::text {
namespace {

using ::testing::HasSubstr;

std::string render(const std::string& name, bool system = true) {
  RenderInput input;
  if (system) input.messages.push_back({{"role", "system"}, {"content", "S"}});
  for (const char* text : {"Q", "A", "R"}) {
    const char* role = *text == 'A' ? "assistant" : "user";
    input.messages.push_back({{"role", role}, {"content", text}});
  }
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return ChatTemplate::parse(template_of(name).take()).take().render(input).take();
}

TEST(KnownTemplates, AllRenderAConversationAndASystemMessage) {
  for (const std::string& name : known_template_names()) {
    const Result<std::string> source = template_of(name);
    ASSERT_TRUE(source.ok()) << name;
    const Result<ChatTemplate> chat = ChatTemplate::parse(*source);
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.error().message;
    const TemplateProbe probe = probe_template(*chat, "<s>", "</s>");
    EXPECT_TRUE(probe.user && probe.assistant && probe.system) << name;
    EXPECT_FALSE(probe.tools) << name;
    // Content is text here, as the server makes it.
    for (const ProbeFailure& failure : probe.failures) {
      EXPECT_EQ(failure.probe, "list content") << name << ": " << failure.message;
    }
  }
}

TEST(KnownTemplates, AreTheFormatsOfTheirModels) {
  EXPECT_EQ(
      render("chatml"),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
      "A<|im_end|>\n<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render("llama2"), "[INST] <<SYS>>\nS\n<</SYS>>\n\nQ [/INST] A </s><s>[INST] R [/INST]");
  EXPECT_EQ(render("llama3", false),
            "<|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(render("mistral-v3"), "[INST] S\n\nQ[/INST] A</s>[INST] R[/INST]");
  EXPECT_EQ(render("mistral-v7"),
            "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] Q[/INST] A</s>[INST] R[/INST]");
  EXPECT_EQ(render("gemma"),
            "<start_of_turn>user\nS\n\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
            "<start_of_turn>user\nR<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render("phi3", false),
            "<|user|>\nQ<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nR<|end|>\n<|assistant|>\n");
  EXPECT_EQ(render("zephyr", false),
            "<|user|>\nQ</s>\n<|assistant|>\nA</s>\n<|user|>\nR</s>\n<|assistant|>\n");
  EXPECT_EQ(render("vicuna"), "S\n\nUSER: Q\nASSISTANT: A</s>\nUSER: R\nASSISTANT:");
  EXPECT_EQ(render("command-r", false),
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Q<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>R<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>");
}

TEST(KnownTemplates, ATextIsItselfAndAWrongNameIsAnError) {
  EXPECT_EQ(*template_of("{{ messages[0].content }}"), "{{ messages[0].content }}");
  EXPECT_THAT(template_of("lama3").error().message, HasSubstr("did you mean 'llama3'"));
  EXPECT_THAT(template_of("").error().message, HasSubstr("known are chatml"));
  EXPECT_THAT(chosen_template("{% for %}", {}).error().message, HasSubstr("--chat-template"));
  EXPECT_FALSE(*chosen_template({}, {}));
  EXPECT_THAT(chosen_template({}, "/no/such.jinja").error().message, HasSubstr("/no/such.jinja"));
}

}  // namespace
}  // namespace ktx::text
