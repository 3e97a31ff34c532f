// Computes Automaton::follow: the bytes that can follow the end of a state's rule, over all its
// callers.
//
//   list ::= word ("," word)*      behind `word` comes `,` or what comes behind `list`
//
// A token that leaves a rule in its middle ("foo," or "foobar" where `word` has room for three
// letters) depends on the stack. A rest that cannot follow on any stack need not be stored and
// tried on each. With a word of up to 12 letters, nearly all of 150,000 tokens are such.
#pragma once

#include "lib/text/grammar/grammar_automaton.h"

namespace ktx::text::grammar {

void find_follow_bytes(Automaton& automaton);

}  // namespace ktx::text::grammar
