// GBNF, the grammar notation of llama.cpp:
//
//   root  ::= "yes" | "no" (" because " text)?      # a comment
//   text  ::= [a-z ]{1,40} | "\u00e9"+
//
// Literals and classes with \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH; `.` is
// any character, [^…] all others; groups; * + ? {n} {n,} {n,m}. A rule may go on over
// line ends; it ends where the next `name ::=` begins. The answer is `root`.
//
//   root  ::= <think> !</think>* </think> .*
//
// Between < and > stands a token of the vocabulary, by its text or, as <[1234]>, by its number; !
// in front stands for all others. Only that token itself is it, not its text in other tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr size_t kMaxGbnfBytes = size_t{1} << 20;
inline constexpr int kMaxGbnfDepth = 60;        // of groups
inline constexpr int kMaxRepetitions = 10'000;  // in {n,m}

// The tokens that a GBNF may name.
struct GbnfTokens {
  int64_t count = 0;
  // The token with exactly this text.
  std::function<std::optional<int32_t>(std::string_view)> find;
  std::function<bool(int32_t)> is_end;  // ends the answer: cannot be a part of it
};

// An error reads "grammar:LINE:COL: what".
Result<GrammarRules> parse_gbnf(std::string_view text, const GbnfTokens& tokens);

}  // namespace ktx::text::grammar
