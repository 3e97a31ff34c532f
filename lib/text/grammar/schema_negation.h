// The schema of what another one forbids:
//
//   {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
//   ->  {"anyOf": [{"type": […all others…]},
//                  {"type": "object", "required": ["kind"], "properties": {"kind": not "a"}},
//                  {"type": "object", "properties": {"kind": false}}]}
//
// Fails where a grammar cannot say it: of unevaluated*, additionalProperties, uniqueItems, formats
// and the like.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

// `root`: what a $ref is relative to.
Result<nlohmann::ordered_json> negated(const nlohmann::ordered_json& root,
                                       const nlohmann::ordered_json& schema,
                                       const std::string& path, SchemaWork& work);

}  // namespace ktx::text::grammar
