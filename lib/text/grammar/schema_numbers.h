// Constraints of schemas on strings and numbers, and counts (minItems, maxLength, …).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

// `path`: the place of the schema, for messages.
Result<int> number_schema(const nlohmann::ordered_json& json, const std::string& path, bool integer,
                          GrammarRules& g, JsonParts& parts, SchemaWork& work);
// A count; `missing` where the schema has none. What must be there is at most 20,000; limits
// (max…) are cut to 2^31 - 1.
Result<int> schema_count(const nlohmann::ordered_json& json, const char* keyword,
                         const std::string& path, int missing);

}  // namespace ktx::text::grammar
