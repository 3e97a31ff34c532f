// The grammar of an answer that must call a tool:
//
//   {"name": "weather", "arguments": {"city": "Paris"}}
//
// The arguments are an object and what the tool's schema says. `$ref`s are relative to that
// schema, so that two tools may each have `#/$defs/Place`. A schema that says nothing of its
// properties ({}, {"type": "object"}) takes none: the arguments are {}.
#pragma once

#include <span>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// An error begins with the `place` of the tool's schema. At least one tool.
Result<GrammarRules> tool_call_rules(std::span<const CallableTool> tools);

}  // namespace ktx::text::grammar
