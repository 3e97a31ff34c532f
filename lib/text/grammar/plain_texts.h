// Grammars of plain text: one of several texts, or the whole-text match of a regular expression
// (the subset of string_pattern.h; `^` and `$` at the ends may be left out).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr size_t kMaxTexts = 10'000;

Result<GrammarRules> choice_rules(std::span<const std::string> texts);
Result<GrammarRules> regex_rules(std::string_view pattern);

}  // namespace ktx::text::grammar
