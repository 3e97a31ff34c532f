// Finds out what a chat template supports by rendering small conversations.
//
//   TemplateProbe probe = probe_template(chat, "<s>", "</s>");
//   if (!probe.user) … // cannot be used: probe.failures says why
//
// Runs at compile time, so that a failing template is reported then and not in the middle of a
// chat. Each probe puts a marker into the conversation and looks for it in the prompt.
// Templates refuse much on purpose (raise_exception); such a refusal is an answer, not a fault
// of the template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/text/chat_template/chat_template.h"

namespace ktx::text {

struct ProbeFailure {
  std::string probe;    // "system", "tools", …
  std::string message;  // the template's error
};

struct TemplateProbe {
  bool user = false;            // a user's message is rendered: without it the template is useless
  bool string_content = false;  // content as a string …
  bool list_content = false;    // … or as [{"type": "text", "text": …}]
  bool assistant = false;       // an answer followed by a next question
  bool system = false;          // a system message
  bool tools = false;           // tool definitions
  bool tool_calls = false;      // an assistant's calls of tools
  bool tool_results = false;    // messages of the role `tool`
  bool generation_prompt = false;  // add_generation_prompt changes the prompt
  bool alternation = false;        // two user messages in a row are refused
  bool reasoning_content = false;  // shown while the assistant's turn goes on
  // The variable that turns thinking on and off: "enable_thinking", "thinking",
  // "reasoning", "reasoning_effort"; empty without one.
  std::string thinking_switch;
  bool opens_thinking = false;  // the generation prompt already opens <think>
  std::vector<ProbeFailure> failures;
};

TemplateProbe probe_template(const ChatTemplate& chat, const std::optional<std::string>& bos_token,
                             const std::optional<std::string>& eos_token);

}  // namespace ktx::text
