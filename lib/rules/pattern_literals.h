// Strings without which a pattern cannot match, so that most patterns of a large rule
// file need not be tried on most module paths:
//
//   ^model\.layers\.(3|4)\.mlp\..*\.(up|down)_proj$
//     one of  model.layers.3.mlp.  model.layers.4.mlp.
//     one of  .up_proj  .down_proj
//
// A subject of ASCII characters that lacks every string of one set is no match. Of a
// pattern that this does not understand (flags, back references, characters that are
// not ASCII) nothing is said: no sets. Never wrong, often incomplete.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ktx::rules {

using LiteralSet = std::vector<std::string>;

// Each set: at least one of its strings, of two characters or more, occurs in every match.
std::vector<LiteralSet> required_literals(std::string_view pattern);

}  // namespace ktx::rules
