// A Lark grammar, as custom tools have it, written as one regular expression.
//
//   lark_pattern("start: word \"!\"\nword: /[a-z]+/")   // "(?:(?:(?:(?:[a-z]+)))(?:!))"
//
// Nothing for what is no regular expression of ours: a rule within itself, %ignore, templates,
// flags, and patterns that string_pattern.h does not know. Safe for any bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ktx::server {

std::optional<std::string> lark_pattern(std::string_view grammar);

}  // namespace ktx::server
