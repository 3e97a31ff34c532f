// Two schemas that both must hold, as one:
//
//   {"minimum": 1} and {"type": "integer", "minimum": 0}  ->  {"type": "integer", "minimum": 1}
//
// An error where one schema cannot say it (two patterns, say). `path` is for messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"

namespace ktx::text::grammar {

Result<nlohmann::ordered_json> merge_schemas(const nlohmann::ordered_json& a,
                                             const nlohmann::ordered_json& b,
                                             const std::string& path);

}  // namespace ktx::text::grammar
