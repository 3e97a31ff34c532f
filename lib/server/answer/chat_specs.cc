#include "lib/server/answer/chat_specs.h"

#include "lib/server/request/tool_parameters.h"

namespace ktx::server {
namespace {

bool asks_for_reasoning(const ChatInput& input) {
  const auto asked = input.extra.find("enable_thinking");
  return asked != input.extra.end() && *asked == Json(true);
}

// A model may reason first; the grammar binds only its answer.
void reason_first(const ServedModel& model, const ChatPrompt& prompt, AnswerSpec& spec) {
  spec.split_reasoning = true;
  if (model.speaks_harmony()) {
    auto watch = ReasoningWatch::create(*model.tokenizer, model.reasoning_form(), prompt.ids, false,
                                        spec.tools);
    spec.filter = std::make_unique<HarmonyFilter>(*model.tokenizer, std::move(*watch),
                                                  std::move(spec.filter));
    return;
  }
  spec.reasoning_open = prompt.reasoning_open;
  spec.filter = std::make_unique<ReasoningFilter>(*model.reasoning_tokens, prompt.reasoning_open,
                                                  std::move(spec.filter));
}

// Reasoning and tool calls are split off an answer to `input`.
void use_chat_parsers(const ServedModel& model, const ChatInput& input, const ChatPrompt& prompt,
                      const Constraint& constraint, AnswerSpec& spec) {
  const bool constrained =
      constraint.kind != Constraint::Kind::None && constraint.kind != Constraint::Kind::ToolAnswer;
  if (constrained) {
    spec.forced_call = constraint.kind == Constraint::Kind::ToolCall;
    if (constraint.or_call) {
      spec.parse_tools = spec.or_format = true;
      spec.tools = offered_tools(input.tools);
      // The grammar leaves Harmony's calls alone: they are messages of their own.
      if (!model.speaks_harmony()) {
        spec.filter = std::make_unique<CallFilter>(*model.call_tokens, std::move(spec.filter));
      }
      // A mark in front of a call is dropped.
      spec.split_reasoning = model.reasoning && !model.reasoning->marks.empty();
    }
    const bool reasons = prompt.reasoning_open || asks_for_reasoning(input) ||
                         (constraint.or_call && model.speaks_harmony());
    if (reasons && model.reasons()) reason_first(model, prompt, spec);
    return;
  }
  spec.split_reasoning = model.reasons();
  spec.reasoning_open = prompt.reasoning_open;
  spec.parse_tools = !input.tools.is_null();
  if (!spec.parse_tools) return;
  spec.tools = offered_tools(input.tools);
  spec.or_format = !constraint.schema.is_null();
  if (spec.filter && model.reasons()) reason_first(model, prompt, spec);
}

}  // namespace

ApiResult<std::vector<AnswerSpec>> make_chat_specs(const ServerContext& context,
                                                   const AnswerFields& fields, ChatInput input) {
  const ServedModel& model = *context.model;
  const Constraint& constraint = fields.constraint;
  apply_reasoning_default(model, input);
  const bool answers = constraint.kind == Constraint::Kind::ToolAnswer;
  if (constraint.kind != Constraint::Kind::None && !answers &&
      !input.extra.contains("enable_thinking")) {
    input.extra["enable_thinking"] = false;
  }
  // A grammar is that of a whole answer.
  if (constraint.kind != Constraint::Kind::None) {
    input.continue_last = false;
    input.answer_at_once = !asks_for_reasoning(input) && !constraint.or_call;
  }
  // DeepSeek's templates have another name for it.
  if (const auto asked = input.extra.find("enable_thinking");
      asked != input.extra.end() && !input.extra.contains("thinking")) {
    const Json value = *asked;
    input.extra["thinking"] = value;
  }
  input.forced_call = constraint.kind == Constraint::Kind::ToolCall;
  const ChatPrompt prompt = KTX_TRY(make_prompt(model, input, *context.asker));
  std::vector<AnswerSpec> specs;
  KTX_TRY(make_specs(context, fields, prompt.ids, specs));
  for (AnswerSpec& spec : specs) {
    use_chat_parsers(model, input, prompt, constraint, spec);
    spec.reasoning_limit = fields.reasoning;
    spec.images = prompt.images;
  }
  Notes& notes = specs.front().notes;
  notes.insert(notes.begin(), input.notes.begin(), input.notes.end());
  return specs;
}

}  // namespace ktx::server
