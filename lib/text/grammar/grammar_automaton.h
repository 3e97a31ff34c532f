// The compiled form of a grammar, matched byte by byte: one deterministic automaton for each
// called rule, in one table of states.
//
// A state has edges by byte (equivalent bytes share a class), calls of rules (match that rule,
// continue at `target`), and may end its rule. Small non-recursive rules are inlined into their
// callers, so most JSON Schemas are one automaton without calls, and need no stack. A repetition
// with a large limit is a loop: its item is called again and again, and its frame on the stack
// counts.
//
// Every state that an edge leads to can reach the end of its rule: a text with a live state can
// be completed.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr uint32_t kDead = UINT32_MAX;
inline constexpr uint8_t kNoEnd = 255;

using ByteSet = std::bitset<256>;

struct Call {
  uint32_t start = 0;   // of the called rule
  uint32_t target = 0;  // where to go on behind it
  int32_t loop = -1;    // in loops; -1: once
};

// An item is called at least `min` times and at most `max`, the first time by the call and then
// from `next` on, where its separator stands.
struct Loop {
  uint32_t next = kDead;
  int min = 1, max = kNoLimit;
};

struct State {
  uint32_t first_call = 0;
  uint16_t call_count = 0;
  bool final = false;      // its rule may end here
  bool has_bytes = false;  // some byte leads on
  // The end and nothing else: a call that goes on here needs no place on the stack.
  bool only_final() const { return final && !has_bytes && call_count == 0; }
  // A byte leads on and nothing happens without one.
  bool plain() const { return has_bytes && !final && call_count == 0; }
};

// The bytes of one set may come from a state on, whichever they are (byte_runs.h).
struct Run {
  uint16_t set = 0;     // 0: none; else run_sets[set - 1]
  uint8_t room = 0;     // how many, up to kNoEnd
  bool closed = false;  // and nothing else may happen with them, nor may more of them come
};

struct Automaton {
  std::array<uint8_t, 256> byte_class = {};
  uint32_t class_count = 0;
  std::vector<State> states;
  std::vector<uint32_t> edges;  // [state * class_count + class], kDead where none
  std::vector<Call> calls;
  std::vector<Loop> loops;
  // By state, of the items of loops: where the next item begins; kDead for others.
  std::vector<uint32_t> again;
  // How many plain characters (token_trie.h) may come from a state on, whichever they
  // are, up to kNoEnd: a string without a limit. Tokens of plain characters alone need
  // not be followed.
  std::vector<uint8_t> room;
  // Whether nothing else may happen with plain characters: neither within the room does
  // the rule end or call another, nor may a plain character come behind it.
  std::vector<uint8_t> closed;
  std::vector<Run> runs;  // by state
  std::vector<ByteSet> run_sets;
  // The bytes that may follow the end of a state's rule, for any caller
  // (follow_bytes.h): follow_of_rule[rule_of_state[state]].
  std::vector<uint32_t> rule_of_state;
  std::vector<ByteSet> follow_of_rule;
  uint32_t start = 0;

  size_t memory_bytes() const {
    return states.size() * (sizeof(State) + 2 + sizeof(Run) + 2 * sizeof(uint32_t)) +
           edges.size() * sizeof(uint32_t) + calls.size() * sizeof(Call) +
           loops.size() * sizeof(Loop) + follow_of_rule.size() * sizeof(ByteSet);
  }
  const ByteSet& follow(uint32_t state) const { return follow_of_rule[rule_of_state[state]]; }
  uint32_t next(uint32_t state, uint8_t byte) const {
    return edges[size_t{state} * class_count + byte_class[byte]];
  }
};

// Limits against hostile grammars; each has its own error.
inline constexpr size_t kMaxFragmentStates = 400'000;
inline constexpr size_t kMaxStates = 60'000;
inline constexpr size_t kMaxCompileWork = 25'000'000;  // some 20 ns each

// Fails on a rule without a definition, left recursion, a grammar that matches no text
// at all, and one that is too large.
Result<Automaton> build_automaton(const GrammarRules& rules);

}  // namespace ktx::text::grammar
