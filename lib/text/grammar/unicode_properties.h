// Characters by their Unicode properties, for \p{L} in patterns.
//
//   property_characters("Lu")             A-Z, À-Ö …; also Uppercase_Letter, gc=Lu
//   property_characters("Script=Greek")   also sc=Greek, scx=Greek, Greek
//
// General categories and their groups, Any, ASCII, Assigned, White_Space, Extended_Pictographic and
// Emoji_Component are known here; all others, scripts above all, are those of PCRE2, whose older
// versions (10.39) have scripts alone. Names are compared without case, underscores, hyphens and
// blanks.
#pragma once

#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/regular_set.h"

namespace ktx::text::grammar {

// In order, without surrogates. An error where there is no such property, or where PCRE2's cost
// more work than is left.
Result<std::vector<CodeRange>> property_characters(std::string_view name, RegularWork& work);

}  // namespace ktx::text::grammar
