// JSON Schema to grammar: every text that the grammar matches is JSON that the schema
// accepts. Not the other way round, so that answers are short and tables small:
//
//   * properties come in the order of the schema; required ones that `properties` does
//     not name come behind them
//   * an object whose schema has `properties` and says nothing of others has no others
//   * oneOf counts as anyOf; a branch together with keywords beside it is merged
//   * `format` is kept for date, time, date-time, uuid and ipv4, and passed over else
//   * enum and const are written without spaces; numbers have up to 16 digits on each
//     side of the point
//
// schema_keywords.def lists the keywords. One that is refused or unknown is an error
// that names it and its place: "schema at #/properties/a: keyword 'not' is not supported".
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{1} << 20;
inline constexpr int kMaxSchemaDepth = 64;  // of values in each other, references included

Result<GrammarRules> parse_json_schema(std::string_view schema);
Result<GrammarRules> schema_rules(const nlohmann::ordered_json& schema);

// Any JSON object, for `json_object` and Ollama's "json".
GrammarRules any_json_object();

}  // namespace ktx::text::grammar
