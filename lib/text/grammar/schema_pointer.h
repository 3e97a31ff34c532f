// What `$ref` names: "#/$defs/node" -> that part of the schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"

namespace ktx::text::grammar {

// `path`: the place of the reference, for messages. Other documents are refused.
Result<const nlohmann::ordered_json*> resolve_pointer(const nlohmann::ordered_json& root,
                                                      const std::string& pointer,
                                                      const std::string& path);

}  // namespace ktx::text::grammar
