// The keywords of JSON Schema, the types to which they apply, and errors that name a place in a
// schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text::grammar {

// Keywords of our own, in schemas that were merged or rewritten; no user can write them.
inline constexpr const char* kAlso = "\1also";  // schemas with anyOf or oneOf that must hold, too
// None of these: [{"enum": …}, {"pattern": …}, {"multipleOf": …}].
inline constexpr const char* kUnlike = "\1unlike";
inline constexpr const char* kPatterns = "\1patterns";  // more patterns that must match
inline constexpr const char* kSteps = "\1steps";        // more values of multipleOf
// Properties or items stand under a negation, which evaluates nothing.
inline constexpr const char* kNegated = "\1negated";
inline bool is_own_keyword(std::string_view name) {
  return name.starts_with('\1');
}

// "schema at #/properties/a: ..."
Error schema_error(const std::string& path, std::string_view what);
Error wrong_type(const std::string& path, std::string_view keyword,
                 const nlohmann::ordered_json& value, std::string_view wanted);

// Once each, and no more than a few.
void add_note(std::string note, std::vector<std::string>* notes);

// Refuses keywords that no grammar can keep (schema_keywords.def) and names that are one of them
// but for a typing error ("minLenght", "min_length", "minimumLength"). Other unknown keywords are
// annotations, as the specification says; what is passed over goes to `notes` (may be null).
Status check_keywords(const nlohmann::ordered_json& schema, const std::string& path,
                      std::vector<std::string>* notes = nullptr);
// Says nothing about the text: it may stand beside anything.
bool is_note(std::string_view keyword);
// Whether all its keywords but `but` are notes.
bool says_nothing(const nlohmann::ordered_json& schema, std::string_view but);

// The types that a schema without `type` speaks of.
std::vector<std::string> types_of_keywords(const nlohmann::ordered_json& schema);
// Those that `type` names, which must be there.
Result<std::vector<std::string>> type_names(const nlohmann::ordered_json& schema,
                                            const std::string& path);
bool is_type(const nlohmann::ordered_json& value, std::string_view type);

}  // namespace ktx::text::grammar
