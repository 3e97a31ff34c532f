// Whether a schema accepts a value that is known: of an enum beside other keywords, or a name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/schema_work.h"

namespace ktx::text::grammar {

// `format` is an annotation here. An error for unevaluated* and patterns that are not supported.
Result<bool> accepts_value(const nlohmann::ordered_json& root, const nlohmann::ordered_json& schema,
                           const nlohmann::ordered_json& value, const std::string& path,
                           SchemaWork& work);

}  // namespace ktx::text::grammar
