// Resolves `$ref`: "#/$defs/node" -> that part of the schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"

namespace ktx::text::grammar {

// `path`: the place of the reference, for messages. Refused are other documents, and what
// lies within a part that has an `$id`: references there are relative to that part.
Result<const nlohmann::ordered_json*> resolve_pointer(const nlohmann::ordered_json& root,
                                                      const std::string& pointer,
                                                      const std::string& path);

// Refuses an `$id` below the root where references stand within: they are relative to it.
Status check_inner_id(const nlohmann::ordered_json& schema, const std::string& path);

}  // namespace ktx::text::grammar
