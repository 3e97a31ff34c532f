// Which tools a model may call, and how its answer to a chat is read.
#pragma once

#include <optional>

#include "lib/server/answer_job.h"
#include "lib/server/chat_prompt_input.h"
#include "lib/server/constraint.h"

namespace ktx::server {

// OpenAI's tool_choice: "none" drops the tools; "auto" changes nothing; "required" and
// {"type": "function", "function": {"name": ...}} are a constraint of the answer.
std::optional<ApiError> apply_tool_choice(const ServedModel& model, const Json* choice, Json& tools,
                                          Constraint& constraint);

// A constrained answer begins at once: a model that reasons is asked not to, unless the
// request says otherwise.
void prepare_constrained(const Constraint& constraint, ChatInput& input);

// Reasoning and tool calls are split off an answer to `input`.
void use_chat_parsers(const ServedModel& model, const ChatInput& input, const ChatPrompt& prompt,
                      const Constraint& constraint, AnswerSpec& spec);

}  // namespace ktx::server
