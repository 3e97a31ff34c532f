// Parses a template variable from a command line, KEY=VALUE:
//
//   enable_thinking=false     the boolean
//   documents=[{"id": 1}]     any JSON
//   date=2026-01-02           what is not JSON is a string ("2026" in quotes is one too)
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lib/support/result.h"

namespace ktx::text {

// An object of all of them; of one name given twice the last counts. An error names
// the variable that has no '=' or whose name is not one of Jinja.
Result<nlohmann::ordered_json> parse_template_vars(std::span<const std::string> vars);

}  // namespace ktx::text
