// Request fields that constrain the answer, of every protocol. Each is enforced or is an error,
// so a client that requested JSON never gets free text. At most one may be given.
#pragma once

#include <string>
#include <string_view>

#include "lib/server/filters/grammar_cache.h"
#include "lib/server/http/json_fields.h"

namespace ktx::server {

// Whether a request could constrain its answer, by its text as it came. A grammar of 40 bytes can
// take as long to compile as a schema of 100 KB. True also where a message has such a word.
bool may_constrain(std::string_view body);

// The fields of constraint_fields.def, and `response_format`. Mistakes are noted in `in`.
void read_constraint(FieldReader& in, Constraint& constraint);

// A format as OpenAI's `response_format` and `text.format` and Anthropic's
// `output_config.format` have it:
//   {"type": "text"}
//   {"type": "json_object"}                                 also with `schema` (or `value`)
//   {"type": "json_schema", "json_schema": {"schema": ...}} or with `schema`
//   {"type": "regex" | "grammar", "value": ...}
// `field` is its name in messages.
void read_format(const Json& format, const std::string& field, FieldReader& in,
                 Constraint& constraint);

// Ollama's `format`: "json", "" or a schema.
void read_ollama_format(const Json& format, FieldReader& in, Constraint& constraint);

}  // namespace ktx::server
