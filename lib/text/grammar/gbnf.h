// GBNF, the grammar notation of llama.cpp:
//
//   root  ::= "yes" | "no" (" because " text)?      # a comment
//   text  ::= [a-z ]{1,40} | "\u00e9"+
//
// Literals and classes with \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH; `.` is
// any character, [^…] all others; groups; * + ? {n} {n,} {n,m}. A rule may go on over
// line ends; it ends where the next `name ::=` begins. The answer is `root`.
#pragma once

#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr size_t kMaxGbnfBytes = size_t{1} << 20;
inline constexpr int kMaxGbnfDepth = 60;        // of groups
inline constexpr int kMaxRepetitions = 10'000;  // in {n,m}

// An error reads "grammar:LINE:COL: what".
Result<GrammarRules> parse_gbnf(std::string_view text);

}  // namespace ktx::text::grammar
