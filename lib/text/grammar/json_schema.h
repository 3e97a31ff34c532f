// Converts a JSON Schema to a grammar. Every text that the grammar matches is JSON that the
// schema accepts. The converse does not hold, so that answers are short and tables small:
//
//   * properties come in the order of the schema; required ones that `properties` does
//     not name come behind them
//   * an object whose schema has `properties`, empty ones too, and says nothing of others
//     has no others
//   * oneOf counts as anyOf; a branch together with keywords beside it is merged
//   * `format` is kept for those of string_formats.cc, and passed over else
//   * enum and const are written without spaces; numbers have up to 16 digits on each
//     side of the point
//
// schema_keywords.def lists the keywords. A refused or unknown keyword is an error with its
// name and place: "schema at #/properties/a: keyword 'if' is not supported".
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_merge.h"

namespace ktx::text::grammar {

Result<GrammarRules> parse_json_schema(std::string_view schema);
Result<GrammarRules> schema_rules(const nlohmann::ordered_json& schema);

// What was done so far, for the limits; shared by all schemas of a grammar.
struct SchemaWork {
  MergeWork merging;
  int merge_count = 0;
  int conversions = 0;
  size_t optional_work = 0;
};
// The expression of a schema's values, for grammars that have more around them. `$ref`s are
// relative to this schema, so that several may have definitions of the same name.
Result<int> add_schema(const nlohmann::ordered_json& schema, GrammarRules& rules, JsonParts& parts,
                       SchemaWork& work);

// Any JSON object, for `json_object` and Ollama's "json".
GrammarRules any_json_object();

}  // namespace ktx::text::grammar
