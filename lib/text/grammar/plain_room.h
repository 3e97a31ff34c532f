// Fills Automaton::room and closed.
#pragma once

#include "lib/text/grammar/grammar_automaton.h"

namespace ktx::text::grammar {

void measure_room(Automaton& automaton);

}  // namespace ktx::text::grammar
