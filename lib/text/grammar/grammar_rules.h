// The common form of GBNF and JSON Schemas: rules of expressions over UTF-8.
//
//   GrammarRules g;
//   int value = g.add_rule("value");
//   g.set_rule(value, g.alternatives({g.text("null"), g.sequence({g.text("["),
//       g.list(g.rule(value), g.text(","), 0, kNoLimit), g.text("]")})}));
//   g.root = value;                        // [], [null], [[null,[]]], …
//
// Expressions are ids into one pool and may be used many times. The pool is bounded: past
// kMaxExpressions it counts without storing, and too_large() returns true.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/regular_set.h"

namespace ktx::text::grammar {

inline constexpr int kNoLimit = -1;
inline constexpr size_t kMaxExpressions = 200'000;
inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// Code points from first to last, both included.
struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

// All code points but these; surrogates are in neither.
std::vector<CodeRange> complement(std::vector<CodeRange> ranges);

enum class ExprKind : uint8_t {
  Text,          // bytes as they are; "" matches the empty text
  Class,         // one code point of some ranges; none: matches nothing
  Sequence,      // parts, one after the other
  Alternatives,  // one of parts; none: matches nothing
  Repeat,        // parts[0], min to max times
  List,          // parts[0], min to max times, with parts[1] between
  Joined,        // parts[1…] in order, those not required may be absent; parts[0] between
  Set,           // a set of texts, sets[set]
  Token,         // one token of the vocabulary, whatever its text (token_terminals.h)
  Rule,          // another rule
};

struct Expr {
  ExprKind kind = ExprKind::Text;
  std::string text;
  std::vector<CodeRange> ranges;
  std::vector<int> parts;
  std::vector<bool> required;  // Joined: of parts[1…]
  int min = 0;
  int max = kNoLimit;
  int rule = -1;
  int set = -1;
  int32_t token = -1;
  bool others = false;  // Token: any but this one
};

struct Rule {
  std::string name;
  int expr = -1;  // -1: not defined yet
};

struct GrammarRules {
  std::vector<Expr> exprs;
  std::vector<Rule> rules;
  std::vector<RegularSet> sets;
  int root = -1;
  bool distinct_items = false;     // some arrays need unique_items.h beside the automaton
  std::vector<std::string> notes;  // what of a schema was passed over

  int text(std::string_view bytes);
  int one_of(std::vector<CodeRange> ranges);
  int sequence(std::vector<int> parts);
  int alternatives(std::vector<int> parts);
  int repeat(int part, int min, int max);
  int optional(int part) { return repeat(part, 0, 1); }
  int list(int item, int separator, int min, int max);
  int joined(int separator, std::vector<int> items, std::vector<bool> required);
  int set(RegularSet texts);
  int token(int32_t id, bool others);
  int rule(int index);
  int nothing() { return alternatives({}); }

  int add_rule(std::string_view name);
  void set_rule(int index, int expr) { rules[index].expr = expr; }

  bool too_large() const { return dropped_ > 0; }

 private:
  int add(Expr expr);
  size_t dropped_ = 0;
};

}  // namespace ktx::text::grammar
