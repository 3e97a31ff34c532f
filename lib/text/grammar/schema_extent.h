// Checks size and depth of a schema before anything else.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/support/result.h"

namespace ktx::text::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{1} << 20;
inline constexpr int kMaxSchemaDepth = 64;  // of values in each other, references included

Status check_extent(const nlohmann::ordered_json& schema);

// JSON that is a schema; its extent is not checked, but for what would take long to parse.
Result<nlohmann::ordered_json> parse_schema_text(std::string_view text);

}  // namespace ktx::text::grammar
