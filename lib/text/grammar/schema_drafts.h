// Rewrites keywords of older drafts of JSON Schema into keywords that the converter supports:
//
//   {"items": [a, b], "additionalItems": false}  ->  {"prefixItems": [a, b], "items": false}
//   {"minimum": 1, "exclusiveMinimum": true}     ->  {"exclusiveMinimum": 1}
//
// Does not look into subschemas.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"

namespace ktx::text::grammar {

bool has_old_words(const nlohmann::ordered_json& schema);
// `schema` is an object; has_old_words() is false for what comes back.
Result<nlohmann::ordered_json> modern_words(const nlohmann::ordered_json& schema,
                                            const std::string& path);

}  // namespace ktx::text::grammar
