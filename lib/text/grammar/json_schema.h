// Converts a JSON Schema to a grammar. Every text that the grammar matches is JSON that the
// schema accepts. The converse does not hold, so that answers are short and tables small:
//
//   * properties come in the order of the schema; required ones that `properties` does
//     not name come behind them
//   * an object whose schema has `properties`, empty ones too, and says nothing of others
//     has no others
//   * a branch of anyOf or oneOf together with keywords beside it is merged; branches of a oneOf
//     that are not seen to be disjoint are each merged with the negation of the others
//   * `format` is kept for those of string_formats.cc, and passed over else
//   * enum and const are written without spaces; numbers have up to 16 digits on each
//     side of the point
//
// schema_keywords.def lists the keywords. A refused or unknown keyword is an error with its
// name and place: "schema at #/properties/a: keyword '$dynamicRef' is not supported".
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

Result<GrammarRules> parse_json_schema(std::string_view schema);
Result<GrammarRules> schema_rules(const nlohmann::ordered_json& schema);

// The expression of a schema's values, for grammars that have more around them. `$ref`s are
// relative to this schema, so that several may have definitions of the same name.
Result<int> add_schema(const nlohmann::ordered_json& schema, GrammarRules& rules, JsonParts& parts,
                       SchemaWork& work);

// Any JSON object, for `json_object` and Ollama's "json".
GrammarRules any_json_object();

}  // namespace ktx::text::grammar
