// Characters by their Unicode properties, for \p{L} in patterns.
//
//   property_characters("Lu")                  A-Z, À-Ö …; also Uppercase_Letter, gc=Lu
//   property_characters("Script=Greek")        nothing: scripts are not known
//
// General categories and their groups, Any, ASCII, Assigned, White_Space, Extended_Pictographic and
// Emoji_Component. Names are compared without case, underscores, hyphens and blanks.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// In order, without surrogates.
std::optional<std::vector<CodeRange>> property_characters(std::string_view name);

}  // namespace ktx::text::grammar
