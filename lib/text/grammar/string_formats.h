// Patterns (string_pattern.h) for the values of JSON Schema's `format`.
#pragma once

#include <string_view>

namespace ktx::text::grammar {

// "date" -> "^(...)$"; "" for a format that is passed over.
std::string_view pattern_of_format(std::string_view name);

}  // namespace ktx::text::grammar
