// Fills Automaton::follow: which bytes can come behind the end of the rule that a state
// belongs to, wherever that rule is called from.
//
//   list ::= word ("," word)*      behind `word` comes `,` or what comes behind `list`
//
// A token that leaves a rule in its middle ("foo," or "foobar" where `word` has room for
// three letters) depends on the stack; what cannot follow on any stack need not be kept to
// be tried on each. With a word of up to 12 letters, of 150,000 tokens nearly all are such.
#pragma once

#include "lib/text/grammar/grammar_automaton.h"

namespace ktx::text::grammar {

void find_follow_bytes(Automaton& automaton);

}  // namespace ktx::text::grammar
