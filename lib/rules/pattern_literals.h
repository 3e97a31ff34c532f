// Required literals: strings without which a pattern cannot match. They save trying most
// patterns of a large rule file on most module paths:
//
//   ^model\.layers\.(3|4)\.mlp\..*\.(up|down)_proj$
//     one of  model.layers.3.mlp.  model.layers.4.mlp.
//     one of  .up_proj  .down_proj
//
// An ASCII subject that lacks every string of one set does not match. Patterns that are not
// analysed (flags, back references, non-ASCII characters) have no sets. The result is never
// wrong, but often incomplete.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ktx::rules {

using LiteralSet = std::vector<std::string>;

// Each set: at least one of its strings, of two characters or more, occurs in every match.
std::vector<LiteralSet> required_literals(std::string_view pattern);

}  // namespace ktx::rules
