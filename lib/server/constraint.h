// `response_format`, `format`, `grammar` and forced tool calls, turned into a filter of
// tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lib/server/grammar_cache.h"
#include "lib/server/json_fields.h"
#include "lib/server/served_model.h"

namespace ktx::server {

// OpenAI's response_format: {"type": "text" | "json_object" | "json_schema", ...}.
std::optional<ApiError> read_response_format(const Json& format, Constraint& constraint);

// The filter; null for Kind::None. An error is the client's: a schema or a grammar that
// cannot be compiled, with the place in it.
std::optional<ApiError> make_filter(const ServedModel& model, const Constraint& constraint,
                                    std::unique_ptr<runtime::TokenFilter>& filter);

}  // namespace ktx::server
