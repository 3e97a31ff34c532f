// The strings of a schema, as an expression or as a set: lengths, patterns, a format, and what they
// must not be.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

Result<int> string_schema(const nlohmann::ordered_json& schema, const std::string& path,
                          GrammarRules& rules, JsonParts& parts, SchemaWork& work);
// The same as a set of JSON strings, quotes included, each written in one way.
Result<RegularSet> string_set(const nlohmann::ordered_json& schema, const std::string& path,
                              SchemaWork& work);

// The JSON strings that a pattern matches; they live as long as `work`.
Result<const RegularSet*> pattern_set(const std::string& pattern, SchemaWork& work);
// These strings, of a list of values of any type.
Result<RegularSet> listed_strings(const nlohmann::ordered_json& values, SchemaWork& work);

}  // namespace ktx::text::grammar
