// Split patterns as tokenizer files write them (Oniguruma, Rust regex) -> PCRE2.
//
// The three agree on nearly all that such patterns use. They differ in
//
//   \s \S       White_Space; PCRE2's adds U+180E               \p{White_Space}
//   \w \W       letters, marks, digits, connectors             [\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]
//   \p{Han}     the script; PCRE2's takes script extensions    \p{sc:Han}
//   [A&&[^B]]   intersection of sets; unknown to PCRE2         one set, or (?:(?![B])[A])
//   $ ^         at every line                                  (?m:$)
//   \u1234      a code point                                   \x{1234}
//
// A set that is all letters but Han is written as its complement, one set: a group
// would need a stack frame for each character of a long word.
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx::text {

// Fails on what has no counterpart; whether the rest compiles is for PCRE2 to say.
Result<std::string> to_pcre2(std::string_view pattern);

// A pattern that matches exactly `text`.
std::string literal_pattern(std::string_view text);

}  // namespace ktx::text
