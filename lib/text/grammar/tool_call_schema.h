// The grammar for an answer that must be a tool call:
//
//   {"name": "weather", "arguments": {"city": "Paris"}}
//
// The arguments are an object that follows the tool's schema. `$ref`s are relative to that
// schema, so two tools may each have `#/$defs/Place`. A schema without properties ({}, {"type":
// "object"}) allows none: the arguments are {}.
#pragma once

#include <span>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// An error begins with the `place` of the tool's schema. At least one tool.
// `answers`: the generic form (lib/text/answers/generic_answer.h), in which such a call, or
// several, or a text stands in an object of its own: {"tool_call": …}, {"tool_calls": […]},
// {"response": "…"}.
Result<GrammarRules> tool_call_rules(std::span<const CallableTool> tools, bool answers = false);

}  // namespace ktx::text::grammar
