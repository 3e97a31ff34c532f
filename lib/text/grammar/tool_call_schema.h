// The grammar for an answer that must be a tool call:
//
//   {"name": "weather", "arguments": {"city": "Paris"}}
//
// The arguments are an object that follows the tool's schema. `$ref`s are relative to that
// schema, so two tools may each have `#/$defs/Place`. A schema without properties ({}, {"type":
// "object"}) allows none: the arguments are {}.
#pragma once

#include <span>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// An error begins with the `place` of its schema. At least one tool.
//
//   Forced    such a call
//   Generic   such a call, or several, or a text, or what follows `format`, each in an object of
//             its own (lib/text/answers/generic_answer.h): {"tool_call": …}, {"tool_calls": […]},
//             {"response": "…"}
//   Llama3    {"name": …, "parameters": {…}}, or what follows `format`
//
// Where no call is forced, a part of a tool's schema that no grammar can keep is passed over with a
// note; that of the format is an error.
Result<GrammarRules> tool_call_rules(std::span<const CallableTool> tools,
                                     CallForm form = CallForm::Forced,
                                     const AnswerFormat* format = nullptr);
std::string_view arguments_key(CallForm form);  // "arguments"

}  // namespace ktx::text::grammar
