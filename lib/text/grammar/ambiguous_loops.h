// Loops whose items cannot be counted while a text is read from the left: where one ends and
// the next begins, or something else does, is known only later, so that a text has as many readings
// as there are counts. As copies these are states of one automaton.
#pragma once

#include <cstddef>
#include <vector>

#include "lib/text/grammar/grammar_automaton.h"

namespace ktx::text::grammar {

// Their places in Automaton::loops; the automaton has its follow bytes (find_follow_bytes). Adds
// what it costs to `work`; beyond kMaxCompileWork all that are left count as such.
std::vector<size_t> ambiguous_loops(const Automaton& automaton, size_t& work);

}  // namespace ktx::text::grammar
