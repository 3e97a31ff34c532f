// What an answer may look like: `response_format`, `format`, `grammar`, tool choices,
// turned into a filter of tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lib/server/json_fields.h"
#include "lib/server/served_model.h"

namespace ktx::server {

struct Constraint {
  enum class Kind { None, JsonObject, JsonSchema, Gbnf };
  Kind kind = Kind::None;
  Json schema;       // JsonSchema
  std::string gbnf;  // Gbnf
};

// OpenAI's response_format: {"type": "text" | "json_object" | "json_schema", ...}.
std::optional<ApiError> read_response_format(const Json& format, Constraint& constraint);

// The filter; null for Kind::None. An error is the client's (400), or says that this
// model cannot be constrained.
std::optional<ApiError> make_filter(const ServedModel& model, const Constraint& constraint,
                                    std::unique_ptr<runtime::TokenFilter>& filter);

}  // namespace ktx::server
