// The keywords of JSON Schema, the types to which they apply, and errors that name a place in a
// schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text::grammar {

// "schema at #/properties/a: ..."
Error schema_error(const std::string& path, std::string_view what);
Error wrong_type(const std::string& path, std::string_view keyword,
                 const nlohmann::ordered_json& value, std::string_view wanted);

// Refuses keywords that are unknown or that no grammar can keep (schema_keywords.def).
Status check_keywords(const nlohmann::ordered_json& schema, const std::string& path);
// Says nothing about the text: it may stand beside anything.
bool is_note(std::string_view keyword);
// Whether all its keywords but `but` are notes.
bool says_nothing(const nlohmann::ordered_json& schema, std::string_view but);

// The type that a keyword speaks of, for schemas that do not say; "" for none.
std::string_view type_of_keyword(std::string_view keyword);
// The types that a schema without `type` speaks of.
std::vector<std::string> types_of_keywords(const nlohmann::ordered_json& schema);
// Those that `type` names, which must be there.
Result<std::vector<std::string>> type_names(const nlohmann::ordered_json& schema,
                                            const std::string& path);
bool is_type(const nlohmann::ordered_json& value, std::string_view type);

}  // namespace ktx::text::grammar
