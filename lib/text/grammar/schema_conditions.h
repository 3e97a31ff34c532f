// Rewrites `not`, `if`, `dependentRequired` and the like into parts that all must hold, with their
// negations (schema_negation.h):
//
//   {"if": A, "then": B, "else": C}     ->  {"allOf": [{"anyOf": [{"allOf": [A, B]}, {"allOf": [not
//   A, C]}]}]}
//   {"dependentRequired": {"a": ["b"]}} ->  {"allOf": [{"anyOf": [{"properties": {"a": false}},
//   {"required": ["b"]}]}]}
//   {"not": {"type": "null"}}           ->  {"allOf": [{"type": [… all others …]}]}
//
// Does not look into subschemas.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

bool has_conditions(const nlohmann::ordered_json& schema);
// `schema` is an object without old words (schema_drafts.h).
Result<nlohmann::ordered_json> without_conditions(const nlohmann::ordered_json& root,
                                                  const nlohmann::ordered_json& schema,
                                                  const std::string& path, SchemaWork& work);

}  // namespace ktx::text::grammar
